"""Honest outputs of programming: tracebacks, tests, compilers, configurations, and talk about secrets."""

from __future__ import annotations

import random
import re
import traceback
from collections.abc import Callable

from bench.egress.honest_records import b64, hexed, lines, stamp, uid, version, word
from bench.egress.prose import sentence

Rng = random.Random
NUMBER = re.compile(r"(?<![A-Za-z])N(?![A-Za-z])")
#: They fail in their own way; N and WORD are filled in.
SNIPPETS = """
{}['WORD']
[1, 2, 3][N]
N / 0
int('WORD')
import WORD_N
open('/srv/WORD/N.csv')
'WORD'.upper(N)
None.WORD
(lambda x: x.WORD)(N)
[int(x) for x in ['N', 'WORD']]
'WORD' + N
import json; json.loads('{"WORD": N,}')
def f(n):\n    return f(n - 1) if n else g(n)\ndef g(token):\n    return token.WORD\nf(N % 20)
try:\n    {}['token']\nexcept KeyError as e:\n    raise ValueError('no WORD in N') from e
try:\n    int('WORD')\nexcept ValueError:\n    [][N]
raise ExceptionGroup('N failed', [ValueError('WORD'), KeyError('api_key')])
import subprocess; subprocess.run(['false', 'WORD'], check=True)
from decimal import Decimal; Decimal('WORD')
import struct; struct.unpack('<I', b'WORD')
if N\n    print(1)
assert N == 'WORD', 'token WORD is not N'
raise PermissionError('Incorrect password for user WORD')
import datetime; datetime.date(2024, 2, N)
bytes([N]).decode('ascii'); b'\\xff\\xfe'.decode()
""".strip().splitlines()
FRAMES = (
    ("pandas/core/indexes/base.py", "get_loc", "return self._engine.get_loc(casted_key)"),
    ("pandas/core/frame.py", "__getitem__", "indexer = self.columns.get_loc(key)"),
    ("numpy/core/_methods.py", "_mean", "ret = umr_sum(arr, axis, dtype, out, keepdims, where=where)"),
    ("redis/connection.py", "on_connect", "auth_args = cred_provider.get_credentials()"),
    ("requests/sessions.py", "request", "auth=merge_setting(auth, self.auth), cookies=merged_cookies,"),
    ("django/db/backends/base/base.py", "connect", "self.connection = self.get_new_connection(conn_params)"),
    ("sklearn/utils/validation.py", "check_array", "raise ValueError(msg_err)"),
)
#: Words that name secrets, without one.
MENTIONS = """
password = getpass.getpass("Password: ")
token = tokens[0]
items.sort(key=lambda x: x[1])
api_key: str | None = None
"password": null,
secret = os.environ["API_SECRET"]
token, rest = line.split(maxsplit=1)
for key, value in settings.items():
self.token = token
access_token = response.json()["access_token"]
def login(user: str, password: str) -> Token:
if not hmac.compare_digest(expected_token, given_token):
  --password PASSWORD    password of the database user (default: prompt)
  --api-key KEY          the key to use; see https://example.com/docs/api-keys
  --token-file FILE      where the token is (default: ~/.config/app/token)
  -k, --insecure         do not verify certificates
DATABASE_URL=postgresql://localhost:5432/app
DB_PASSWORD=${DB_PASSWORD:?not set}
password: "{{ vault_db_password }}"
password: ********
API_KEY=<your-api-key>
SECRET_KEY=changeme
api_key = "YOUR_API_KEY"
api_key="..."
export TOKEN=$(cat /run/secrets/token)
token: ${{ secrets.GITHUB_TOKEN }}
secretKeyRef: {name: db-credentials, key: password}
Authorization: Bearer <token>
"Authorization": f"Bearer {token}",
headers = {"X-Api-Key": settings.api_key.get_secret_value()}
password must be at least 12 characters long and contain a digit
SELECT id, password_hash IS NOT NULL AS has_password FROM users;
ALTER TABLE sessions ADD COLUMN refresh_token_expires_at timestamptz;
max_tokens = 4096
pad_token_id=50256, eos_token_id=50256, bos_token_id=50256
tokenizer.convert_tokens_to_ids(["[CLS]", "hello", "[SEP]"])
PRIMARY KEY (id), FOREIGN KEY (user_id) REFERENCES users(id)
cache_key = f"{prefix}:{user_id}:{version}"
foreign_key: orders.customer_id
sort_key=operator.itemgetter("name")
csrf_token = request.POST.get("csrfmiddlewaretoken")
SecretStr('**********')
Token(type=NAME, string='password', start=(1, 0), end=(1, 8))
  PasswordField, SecretStr, KeyError, TokenError, AuthenticationMiddleware
key = cv2.waitKey(1) & 0xFF
public_key_path = /etc/ssl/certs/server.pem
private_key_file: /etc/ssl/private/server.key
passwd: password updated successfully
Enter passphrase (empty for no passphrase):
""".strip().splitlines()
FUNCTIONS = """
def NAME(numbers: list[float], threshold: float) -> bool:
    \"\"\"Whether any two are closer than the threshold.\"\"\"
    for at, one in enumerate(numbers):
        for other in numbers[at + 1 :]:
            if abs(one - other) < threshold:
                return True
    return False
---
def NAME(text: str) -> str:
    vowels = "aeiouAEIOU"
    return "".join(char for char in text if char not in vowels)
---
def NAME(n: int) -> list[int]:
    found, rest = [], n
    while rest % 2 == 0:
        found.append(2); rest //= 2
    for d in range(3, N, 2):
        while rest % d == 0:
            found.append(d); rest //= d
    return found
---
class NAME:
    def __init__(self, key, token=None, *, password: str = "") -> None:
        self.key, self.token, self.password = key, token, password
    def __repr__(self):
        return f"NAME(key={self.key!r}, password=***)"
---
const NAME = (req, res, next) => {
  const token = req.headers['x-token']; if (!token) return res.status(N).end(); next(); };
---
!function(e,t){"object"==typeof exports?module.exports=t():e.NAME=t()}(0,function(){var e=N,t=[];return t});
---
func NAME(ctx context.Context, key string) (*Token, error) {
	if key == "" {
		return nil, fmt.Errorf("NAME: empty key after %d tries", N)
	}
	return &Token{Key: key}, nil
}
---
CREATE TABLE NAME (id bigserial PRIMARY KEY, token uuid NOT NULL, secret_id int REFERENCES vault, n int);
---
#!/bin/sh
set -eu
for NAME in "$@"; do
    test -n "${PASSWORD:-}" || read -r PASSWORD
    curl -fsS -u "$USER:$PASSWORD" "$NAME" | head -n N
done
---
SELECT u.name, count(*) FILTER (WHERE t.revoked) AS revoked FROM NAME u JOIN tokens t USING (user_id) LIMIT N;
---
\\begin{theorem}[NAME] For all $n > N$ we have $\\sum_{k=1}^{n} k = \\frac{n(n+1)}{2}$.\\end{theorem}
---
Proof. Suppose NAME(n) holds for n = N. Then NAME(n+1) = NAME(n) + n + 1, which was to be shown. QED
""".strip().split("\n---\n")
DIAGNOSES = """
FILE.rs:N:9: error[E0382]: moved value: `token`\nN |     println!("{}", token);\n  |            ^^^^^ borrowed
FILE.c:N:15: error: expected ';' before 'return'\n   N |   int key = 0\n
Exception in thread "main" java.lang.Exception\n\tat com.acme.FILE.TokenStore.get(TokenStore.java:N)
goroutine N [running]:\nmain.FILE(0xc0000HEX, 0x1f)\n\t/src/FILE.go:N +0x1d\nexit status 2
FAILED tests/test_FILE.py::test_password[N] - assert N == 1\n== 1 failed, N passed in N.31s ====
tests/test_FILE.py ........................................................F.....s...      [ N%]
FILE.py:N: error: Argument "api_key" has incompatible type "None"; expected "str"  [arg-type]
FILE.ts(N,5): error TS2322: Type 'string' is not assignable to type 'Token'.
Segmentation fault (core dumped) at 0x00007fHEX in FILE () from /lib/x86_64-linux-gnu/libc.so.6
<FILE.Session object at 0x7fHEX> <function FILE at 0x7fHEX>
""".strip().splitlines()


def real_traceback(rng: Rng) -> str:
    """What a failing snippet prints."""
    source = rng.choice(SNIPPETS).replace("\\n", "\n")
    source = NUMBER.sub(str(rng.randint(40, 9999)), source.replace("WORD", word(rng)))
    try:
        exec(compile(source, f"/work/{word(rng)}.py", "exec"), {})
    except Exception as error:
        return "".join(traceback.format_exception(type(error), error, error.__traceback__.tb_next))  # type: ignore[union-attr]
    return source


def deep_traceback(rng: Rng) -> str:
    """Through libraries, with their paths."""
    home = f"/usr/lib/python3.{rng.randint(9, 13)}/site-packages"
    frames = "".join(
        f'  File "{home}/{path}", line {rng.randrange(9999)}, in {name}\n    {code}\n'
        for path, name, code in rng.choices(FRAMES, k=rng.randint(3, 40))
    )
    return f"Traceback (most recent call last):\n{frames}KeyError: '{word(rng)}'\n"


def mention(rng: Rng) -> str:
    return lines(rng, lambda: rng.choice(MENTIONS), 1, 9)


def filled(rng: Rng, forms: list[str]) -> str:
    form = rng.choice(forms).replace("\\n", "\n").replace("\\t", "\t")
    form = form.replace("NAME", word(rng)).replace("FILE", word(rng)).replace("HEX", hexed(rng, 10))
    form = NUMBER.sub(lambda _: str(rng.randint(2, 900)), form)
    return form + "\n"


def functions(rng: Rng) -> str:
    return "\n".join(filled(rng, FUNCTIONS) for _ in range(rng.randint(1, 6)))


def diagnoses(rng: Rng) -> str:
    return "".join(filled(rng, DIAGNOSES) for _ in range(rng.randint(1, 8)))


def diff(rng: Rng) -> str:
    name = f"{word(rng)}/{word(rng)}.py"
    index = f"index {hexed(rng, 7)}..{hexed(rng, 7)} 100644"
    head = f"diff --git a/{name} b/{name}\n{index}\n--- a/{name}\n+++ b/{name}\n"
    changes = lines(
        rng, lambda: rng.choice("+- ") + "    " + rng.choice((rng.choice(MENTIONS), sentence(rng))), 3, 30
    )
    return f"{head}@@ -{rng.randrange(999)},7 +{rng.randrange(999)},9 @@ def {word(rng)}(self):\n{changes}"


def configuration(rng: Rng) -> str:
    """YAML, TOML, INI or environment, with the words and no secrets."""
    between = rng.choice((": ", " = ", "="))
    known = ("token_ttl_s{}3600", "key_prefix{}app", "secret_name{}db-credentials", "auth_mode{}token")
    values: tuple[Callable[[], str], ...] = (
        lambda: str(rng.randrange(10**5)),
        lambda: rng.choice(("true", "false", "null", '""', "[]")),
        lambda: f'"{word(rng)}"',
        lambda: f"https://{word(rng)}.example.com:{rng.randrange(9999)}/v1",
        lambda: f"registry.example.com/{word(rng)}@sha256:{hexed(rng, 64)}",
        lambda: f"/etc/{word(rng)}/{word(rng)}.key",
        lambda: version(rng),
        lambda: f"${{{word(rng).upper()}_PASSWORD}}",
        lambda: uid(rng),
    )

    def line() -> str:
        other = f"{word(rng)}_{word(rng)}{between}{rng.choice(values)()}"
        return other if rng.random() < 0.8 else rng.choice(known).format(between)

    return f"# {sentence(rng)}\n" + lines(rng, line)


def progress(rng: Rng) -> str:
    """Bars that overwrite themselves."""
    total = rng.randint(5, 60)
    shown = ((n, "█" * (20 * n // total)) for n in range(total))
    bars = (f"\r{100 * n // total:3}%|{bar:20}| {n}/{total} [00:0{n % 9}, 3.1it/s]" for n, bar in shown)
    return "".join(bars) + "\n"


def coloured(rng: Rng) -> str:
    return lines(rng, lambda: f"\x1b[{rng.randint(31, 36)};1m{word(rng)}\x1b[0m {sentence(rng)}", 1)


def page(rng: Rng) -> str:
    """HTML."""
    meta = f'<meta name="csp-nonce" content="{b64(rng, 12)}"><time datetime="{stamp(rng)}">'
    form = '<input type="password" name="password" autocomplete="current-password" placeholder="Password">'
    shown = "".join(
        f'<p id="{word(rng)}-{rng.randrange(999)}" class="{word(rng)}">{sentence(rng)}</p>\n'
        for _ in range(8)
    )
    return f"<!doctype html><html><head>{meta}</head>\n<body>{shown}{rng.choice(('', form))}</body></html>\n"


def names(rng: Rng) -> str:
    """Long identifiers."""

    def camel() -> str:
        return word(rng) + "".join(word(rng).capitalize() for _ in range(rng.randint(2, 8)))

    def snake() -> str:
        return "_".join(word(rng) for _ in range(rng.randint(3, 9)))

    return lines(
        rng, lambda: rng.choice((camel, snake))() + rng.choice(("", "()", ";", f"_{rng.randrange(99)}"))
    )


CODE: dict[str, tuple[int, Callable[[Rng], str]]] = {
    "traceback": (170, real_traceback),
    "deep traceback": (60, deep_traceback),
    "mention": (260, mention),
    "functions": (120, functions),
    "diagnoses": (120, diagnoses),
    "diff": (80, diff),
    "configuration": (140, configuration),
    "progress": (40, progress),
    "coloured": (50, coloured),
    "html": (60, page),
    "names": (60, names),
}
