"""Secrets that only their surroundings tell: lines of files and headers, key files, connection strings."""

from __future__ import annotations

import base64
import json
import random
import textwrap
from collections.abc import Callable
from functools import partial

WORDS = [
    "orders",
    "billing",
    "ledger",
    "intern",
    "crm",
    "stage",
    "metrics",
    "harbor",
    "falcon",
    "maple",
    "comet",
]
#: As printed; the core stands between « and ». More than one form of a kind: one of them is taken.
FORMS: dict[str, str | tuple[str, ...]] = {
    "aws-secret-line": ("aws_secret_access_key = «<B40>»", "AWS_SECRET_ACCESS_KEY=«<B40>»"),
    "aws-credentials-file": "[default]\naws_access_key_id = AKIA<2:16>\naws_secret_access_key = «<B40>»\n",
    "aws-session-token": "AWS_SESSION_TOKEN=«IQoJb3JpZ2luX2Vj<B340>==»",
    "azure-storage": (
        "DefaultEndpointsProtocol=https;AccountName=<word>st;AccountKey=«<B86>==»;EndpointSuffix=core.windows.net"
    ),
    "azure-service-bus": (
        "Endpoint=sb://<word>.servicebus.windows.net/;SharedAccessKeyName=RootManageSharedAccessKey;"
        "SharedAccessKey=«<B43>=»"
    ),
    "azure-sas": (
        "https://<word>.blob.core.windows.net/data?sv=2022-11-02&ss=b&srt=sco&sp=rl&se=2031-01-01T00:00:00Z&spr=https"
        "&sig=«<A20>%2B<A14>%2F<A7>%3D»"
    ),
    "aws-presigned": (
        "https://<word>.s3.amazonaws.com/a.csv?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Date=20310101T000000Z"
        "&X-Amz-Expires=3600&X-Amz-SignedHeaders=host&X-Amz-Signature=«<h64>»"
    ),
    "twilio-auth": "TWILIO_AUTH_TOKEN=«<h32>»",
    "postmark": ("POSTMARK_SERVER_TOKEN=«<uuid>»", "X-Postmark-Server-Token: «<uuid>»"),
    "cohere": 'COHERE_API_KEY="«<A40>»"',
    "mistral": "export MISTRAL_API_KEY=«<A32>»",
    "heroku-uuid": "HEROKU_API_KEY: «<uuid>»",
    "vercel-assigned": "VERCEL_TOKEN=«<A24>»",
    "cloudflare": ("CLOUDFLARE_API_TOKEN=«<u40>»", "X-Auth-Key: «<h37>»"),
    "datadog": ("DD_API_KEY=«<h32>»", "DD_APP_KEY: «<h40>»"),
    "okta": "Authorization: SSWS «00<u40>»",
    "algolia": 'ALGOLIA_ADMIN_KEY = "«<h32>»"',
    "sentry-dsn": "SENTRY_DSN=https://«<h32>:<h32>»@o<d6>.ingest.sentry.io/<d7>",
    "postgres-url": "DATABASE_URL=postgresql://<word>:«<A20>»@db-<word>.internal:5432/<word>",
    "mysql-url": "mysql+pymysql://root:«<p18>»@10.<d2>.<d1>.<d2>:3306/<word>?charset=utf8mb4",
    "mongodb-url": 'MONGO_URI = "mongodb+srv://<word>:«<A16>»@cluster0.<a5>.mongodb.net/<word>?retryWrites=true"',
    "redis-url": (
        "REDIS_URL=redis://:«<A24>»@redis-<word>:6379/0",
        "rediss://default:«<h48>»@<word>.upstash.io:6379",
    ),
    "amqp-url": "CELERY_BROKER_URL: amqps://<word>:«<u32>»@rabbit.<word>.internal/<word>",
    "jdbc-url": "jdbc:sqlserver://<word>.internal:1433;databaseName=<word>;user=sa;password=«<A18>»;encrypt=true",
    "odbc-string": "Driver={ODBC Driver 17};Server=<word>;Database=<word>;Uid=app;Pwd=«<A18>»;",
    "ado-string": "Server=tcp:<word>.database.windows.net;User ID=app;Password=«<human>»;Encrypt=True",
    "basic-auth-url": "https://deploy:«<A22>»@artifacts.<word>.example.com/simple/",
    "git-remote-url": "origin  https://oauth2:«<u26>»@git.<word>.example.com/team/app.git (fetch)",
    "bearer-header": (
        "Authorization: Bearer «<u43>»",
        "curl -H 'Authorization: Bearer «<A40>»' https://api/v1/me",
    ),
    "api-key-header": ("X-API-Key: «<A32>»", '{"x-api-key": "«<h48>»", "accept": "application/json"}'),
    "cookie-header": (
        "Cookie: lang=en; sessionid=«<a32>»",
        "Set-Cookie: session=«<u64>»; HttpOnly; Path=/; Secure",
    ),
    "kubeconfig-token": "users:\n- name: admin\n  user:\n    token: «<a6>.<a16><A40>»\n",
    "kubernetes-join": "kubeadm join 10.0.0.<d2>:6443 --token «<a6>.<a16>» --discovery-token-unsafe-skip-ca",
    "docker-swarm-join": "docker swarm join --token «SWMTKN-1-<a50>-<a25>» 192.168.<d2>.<d2>:2377",
    "netrc": "machine api.<word>.example.com login deploy password «<A20>»",
    "pgpass": "db.<word>.internal:5432:<word>:app:«<A20>»",
    "npmrc-auth": "//registry.<word>.example.com/:_authToken=«<uuid>»",
    "npmrc-password": "//npm.<word>.example.com/:_password=«<B31>=»",
    "pypirc": "[<word>]\nrepository = https://pypi.<word>.internal/\nusername = ci\npassword = «<A24>»\n",
    "my-cnf": '[client]\nuser = backup\npassword = "«<p20>»"\nhost = db.<word>.internal\n',
    "env-api-key": ("API_KEY=«<A32>»", "SERVICE_API_KEY='«<h40>»'", "<word>_apikey: «<u36>»"),
    "env-db-password": ("export DB_PASSWORD='«<p16>»'", "DB_PASS=«<A16>»", "PGPASSWORD=«<A14>» psql -h db"),
    "django-secret-key": ("SECRET_KEY = 'django-insecure-«<p50>»'", 'SECRET_KEY = "«<p50>»"'),
    "flask-secret": "app.config['SECRET_KEY'] = '«<h48>»'",
    "rails-master": "SECRET_KEY_BASE=«<h128>»",
    "jwt-signing-secret": 'JWT_SECRET="«<u43>»"',
    "client-secret-json": '{"client_id": "<uuid>", "client_secret": "«<A40>»", "tenant": "<uuid>"}',
    "refresh-token-json": '{"expires_in": 3599, "refresh_token": "«1//0<u98>»", "token_type": "Bearer"}',
    "password-json": ('{"user": "admin", "password": "«<p16>»", "port": 5432}', '"passwd": "«<A18>»",'),
    "password-yaml": ("db:\n  user: app\n  password: «<A18>»\n  port: 5432\n", "  admin_password: '«<p20>»'"),
    "password-human": ("password: «<human>»", 'DB_PASSWORD="«<human>»"', "mysql root password = «<human>»"),
    "password-option": (
        "mysqldump -u root --password=«<A16>» <word>",
        "app --user ci --password «<A20>» --verbose",
    ),
    "password-short-option": "mysql -uroot -p«<A16>» <word>",
    "sshpass": "sshpass -p '«<p16>»' ssh root@10.0.<d2>.<d2>",
    "curl-user": "curl -u admin:«<A18>» https://<word>.example.com/api",
    "python-dict": "{'host': 'db', 'user': 'app', 'password': '«<p18>»', 'port': 5432}",
    "python-call": "psycopg2.connect(host='db', user='app', password='«<A18>»')",
    "toml-secret": '[auth]\nsecret = "«<B43>=»"\nissuer = "https://<word>.example.com"\n',
    "xml-password": "<add key='smtp'/>\n<password>«<A16>»</password>",
    "properties-password": "spring.datasource.password=«<A18>»",
    "encryption-key": ("ENCRYPTION_KEY=«<h64>»", "FERNET_KEY = b'«<u43>=»'", "AES_KEY=base64:«<B43>=»"),
    "wireguard": "[Interface]\nAddress = 10.8.0.<d1>/24\nPrivateKey = «<B43>=»\nDNS = 1.1.1.1\n",
    "ethereum-private-key": ("PRIVATE_KEY=0x«<h64>»", '"privateKey": "0x«<h64>»"'),
    "htpasswd-apr1": "admin:«$apr1$<A8>$<A22>»",
    "htpasswd-bcrypt": "deploy:«$2y$10$<A53>»",
    "shadow": "root:«$6$<A16>$<A86>»:19700:0:99999:7:::",
    "totp-uri": "otpauth://totp/<word>:admin?secret=«<2:32>»&issuer=<word>",
    "ansible-vault-password": "ansible_become_pass=«<A18>»",
    "signing-key-assignment": "webhook_signing_key: «<h64>»",
}
PEM_BODIES = {  #: what stands in the line, the bytes it begins with, and how many random ones follow
    "RSA PRIVATE KEY": ("308204a40201000282010100", 1180),
    "PRIVATE KEY": ("308204be020100300d06092a864886f70d0101010500048204a8308204a40201000282010100", 1179),
    "ENCRYPTED PRIVATE KEY": (
        "3082052d305706092a864886f70d01050d304a302906092a864886f70d01050c301c0408",
        1293,
    ),
    "EC PRIVATE KEY": ("30770201010420", 114),
    "DSA PRIVATE KEY": ("308203550201000282010100", 845),
    "OPENSSH PRIVATE KEY": ("6f70656e7373682d6b65792d763100000000046e6f6e65000000046e6f6e65", 365),
}


def pem(rng: random.Random, title: str) -> tuple[str, str]:
    """A key file, and its body."""
    start, count = PEM_BODIES[title]
    return armoured(rng, title, bytes.fromhex(start) + rng.randbytes(count))


def armoured(
    rng: random.Random, title: str, body: bytes, *headers: str, dashes: str = "-" * 5
) -> tuple[str, str]:
    """Between its BEGIN and END lines."""
    core = "\n".join(textwrap.wrap(base64.b64encode(body).decode(), 70 if "SSH" in title else 64))
    head = "".join(f"{header}\n" for header in headers)
    space = " " if dashes.endswith(" ") else ""
    begin, end = (f"{dashes}{word} {title}{space}{dashes.strip()}" for word in ("BEGIN", "END"))
    return f"{begin}\n{head}{core}\n{end}\n", core


def old_encrypted(rng: random.Random) -> tuple[str, str]:
    """As OpenSSL wrote it for long."""
    headers = ("Proc-Type: 4,ENCRYPTED", f"DEK-Info: AES-128-CBC,{rng.randbytes(16).hex().upper()}", "")
    return armoured(rng, "RSA PRIVATE KEY", rng.randbytes(1200), *headers)


def pgp(rng: random.Random) -> tuple[str, str]:
    """An armoured export."""
    body = bytes.fromhex("95058604") + rng.randbytes(1400)
    return armoured(rng, "PGP PRIVATE KEY BLOCK", body, "Version: GnuPG v2", "")


def ssh2(rng: random.Random) -> tuple[str, str]:
    """As ssh.com's tools write it."""
    body = bytes.fromhex("3f6ff9eb") + rng.randbytes(830)
    return armoured(rng, "SSH2 ENCRYPTED PRIVATE KEY", body, 'Comment: "2048-bit RSA"', dashes="---- ")


def putty(rng: random.Random) -> tuple[str, str]:
    """A .ppk file."""
    public, core = (base64.b64encode(rng.randbytes(count)).decode() for count in (51, 36))
    head = "PuTTY-User-Key-" + "File-3: ssh-ed25519\nEncryption: none\nComment: me@laptop\nPublic-Lines: 1\n"
    return f"{head}{public}\nPrivate-Lines: 1\n{core}\nPrivate-MAC: {rng.randbytes(32).hex()}\n", core


def service_account(rng: random.Random) -> tuple[str, str]:
    """A key of a Google service account."""
    key, body = pem(rng, "PRIVATE KEY")
    mail = f"{rng.choice(WORDS)}@acme-{rng.randrange(10**6)}.iam.gserviceaccount.com"
    fields = {"type": "service_account", "private_key_id": rng.randbytes(20).hex(), "private_key": key}
    return json.dumps({**fields, "client_email": mail}, indent=2), json.dumps(body)[1:-1]


def jwt(rng: random.Random) -> tuple[str, str]:
    """A signed token; all of it is the core."""
    claims = {"sub": str(rng.randrange(10**9)), "iat": 1_900_000_000 + rng.randrange(10**6), "role": "admin"}
    parts = [
        json.dumps(part, separators=(",", ":")).encode() for part in ({"alg": "HS256", "typ": "JWT"}, claims)
    ]
    token = ".".join(
        base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (*parts, rng.randbytes(32))
    )
    return rng.choice(("{}", "Authorization: Bearer {}", "id_token={}", '"access_token": "{}"')).format(
        token
    ), token


def basic_header(rng: random.Random) -> tuple[str, str]:
    """Name and password in base64."""
    core = base64.b64encode(f"admin:{human_password(rng)}{rng.randrange(10**6)}".encode()).decode()
    return f"Authorization: Basic {core}", core


def docker_config(rng: random.Random) -> tuple[str, str]:
    """~/.docker/config.json."""
    core = base64.b64encode(f"ci:{rng.randbytes(16).hex()}".encode()).decode()
    return json.dumps({"auths": {"registry.example.com": {"auth": core}}}, indent=8), core


def kubeconfig(rng: random.Random) -> tuple[str, str]:
    """The client's key in ~/.kube/config."""
    core = base64.b64encode(pem(rng, "RSA PRIVATE KEY")[0].encode()).decode()
    return f"users:\n- name: admin\n  user:\n    client-key-data: {core}\n", core


def kubernetes_secret(rng: random.Random) -> tuple[str, str]:
    """`kubectl get secret -o yaml`."""
    core = base64.b64encode(rng.randbytes(12).hex().encode()).decode()
    return f"apiVersion: v1\ndata:\n  password: {core}\nkind: Secret\nmetadata:\n  name: db\n", core


def human_password(rng: random.Random) -> str:
    """As people make them, of twelve characters and more."""
    word, other = (rng.choice(WORDS).capitalize() for _ in range(2))
    plain = f"{word}{rng.choice('!-_.#')}{other}{rng.randint(10, 2099)}"
    return plain.replace(rng.choice("aeo"), rng.choice("@30")) + rng.choice(("!", "", "?!", "#"))


MADE: dict[str, Callable[[random.Random], tuple[str, str]]] = {
    **{f"pem-{title.lower().replace(' ', '-')}": partial(pem, title=title) for title in PEM_BODIES},
    "pem-old-encrypted": old_encrypted,
    "pgp-private-key": pgp,
    "ssh2-private-key": ssh2,
    "putty-private-key": putty,
    "gcp-service-account": service_account,
    "jwt": jwt,
    "basic-header": basic_header,
    "docker-config": docker_config,
    "kubeconfig-key": kubeconfig,
    "kubernetes-secret": kubernetes_secret,
}
MARKED = {"jwt", "kubeconfig-key"}
