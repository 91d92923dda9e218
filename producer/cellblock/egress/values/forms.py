"""The form of a value, without its surroundings: a placeholder, code, a word, a path, a number, a digest.

Each function checks one form of one value, and no function knows a name.
"""

# ruff: noqa: E501

from __future__ import annotations

import itertools
import re

_PLACEHOLDER = re.compile(
    r"(?:your|my|the|our|some|example|sample|dummy|test|fake|changeme|change|placeholder|insert|replace|with|redacted|none|null|nil"
    r"|true|false|undefined|secret|password|passwd|passphrase|token|xxx+|todo|tbd|string|value|default|empty|optional|required|str|int"
    r"|bytes|hidden|masked|user|username|admin|root|guest|pass|pwd|key|api|access|private|here|goes|enter|set|not|bool|boolean"
    r"|text|varchar|char|uuid|integer|unset|missing|provided|present|invalid|incorrect|wrong|encrypted|from|env|vault|file|prompt)",
    re.IGNORECASE,
)
_MASKED = re.compile(
    r"[*x.•●#_=+ -]{3,}|\[[^\]]*\]?|<[^>]*>?|\$\{.*|\$\(.*|\$(?-i:[A-Z_][A-Z0-9_]*|[A-Za-z_]+\d?)|(?:\$\{?[A-Za-z_]\w*\}?){2,}|\{\{.*|\{[A-Za-z_][\w. -]{0,24}\}?|\{|%\(?\w+\)?s?%?|.*\.\.\.$|.*…$|(.)\1+|.{0,8}\*{3,}.{0,8}"
    r"|.{0,6}x{6,}.{0,4}",
    re.IGNORECASE | re.DOTALL,
)
_CODE = re.compile(
    r"[A-Za-z_$][\w$]*(?:(?:\.|::|->|\?\.)[\w$]+)*(?:->)?[(\[{].*|.*[()].*|https?:.*|\w+\[.*|@[A-Za-z_]+(?:\.[A-Za-z_]+)*"
    r"|(?:self|this|config|settings|os|process|env|request|req|ctx|data|args|params|options|opts|cfg)\.[\w.]+"
    r"|(?:True|False|None|null|nil|str|int|bool|bytes|string|String|SecretStr|Optional|undefined)(?:[|,;].*)?"
    r"|[=<>!&|+*/-]{1,3}.{0,2}",
    re.DOTALL,
)
_DIGEST = re.compile(r"(?:sha\d{1,3}|md5|blake2b?|SHA\d{1,3}|MD5)[:=-]")
#: Other texts of letters and digits that are not secrets.
_OTHER = re.compile(
    r"v?\d+(?:\.\d+)+[\w.+-]*|(?i:x|ed|curve)(?:25519|448)|\d{4}-\d\d-\d\d.*|\d\d:\d\d.*|\d+(?:\.\d+)?[a-zA-Z%/]{1,5}|(?:utf|sha|md|int|uint|float|str|base|x|i|u|rs|hs|es|ps"
    r"|aes|ecb|cbc|gcm|rsa|p|ed|ecdsa|crc|blake|ipv|http|s|ec|python|py|col|row|item|field|user|test|step|level|version|page|line|part|node"
    r"|model|layer|group|key|token|host|server|db|id|no|n|t|k|job|task|run|v)[_-]?\d{1,6}\w?|[A-Z_]{3,40}=.*|[0-9a-fA-F]{4,16}:|0x(?:[0-9a-fA-F]{1,8}|[0-9a-fA-F]{40})"
    r"|\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?"
    r"|[\w.+-]+@[\w-]+\.[\w.-]+|[a-z]+://.*|arn:.*|(?i:aes|rsa|hmac|pbkdf2|sha|rs|hs|es|scram|bcrypt|argon2|scrypt|ed25519|chacha20)[-_/][-_/\w]*|(?:AES|RSA|HMAC|PBKDF2|SHA|RS|HS|ES)\w*"
)
_PATH = re.compile(
    r"(?:[A-Za-z]:)?(?:[.~]{0,2}[/\\])[\w. @-]+(?:[/\\][\w. @-]*)*|[\w-]+(?:[/\\][\w.-]+)+|[\w-]+\.[a-z]{1,4}"
)
_NAMED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_BYTES = re.compile(r"(?:(?:0x)?[0-9A-Fa-f]{2}(?:[:, -]|\\x|\s)\s{0,40}){11,}(?:0x)?[0-9A-Fa-f]{2}")
_ESCAPED = re.compile(r"(?:[^\\]{0,12}\\x[0-9a-f]{2}){5}")
_PART = re.compile(r"[A-Za-z0-9]+")
_PIECES = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_HEX = re.compile(r"(?:0x)?(?:[0-9a-f]{16,}|[0-9A-F]{16,})")
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


def is_placeholder(value: str) -> bool:
    """Whether the value is words in place of a secret."""
    words = [word for word in re.split(r"[^A-Za-z]+", value) if len(word) > 2]
    return bool(words) and all(map(_PLACEHOLDER.fullmatch, words)) and sum(map(str.isdigit, value)) <= 3


def is_masked(value: str) -> bool:
    """Whether it is stars, a reference to a variable, a template, or one repeated character."""
    return _MASKED.fullmatch(value) is not None


def is_code(value: str) -> bool:
    """Whether it is an expression of a program."""
    return _CODE.fullmatch(value) is not None


def is_path(value: str) -> bool:
    """Whether it is the path of a file, or a dotted name."""
    return _PATH.fullmatch(value) is not None or _NAMED.fullmatch(value) is not None


def is_bytes(value: str) -> bool:
    """Whether it has the form of twelve or more bytes: two hexadecimal digits each, or escapes."""
    return _BYTES.match(value) is not None or _ESCAPED.search(value) is not None


def is_digest(value: str) -> bool:
    """Whether it names itself as a digest."""
    return _DIGEST.match(value) is not None


def is_something_else(value: str) -> bool:
    """Whether it is a version, a date, a size, an algorithm, a path, an address or a numbered name."""
    return _OTHER.fullmatch(value) is not None


def is_hex(value: str) -> bool:
    """Whether it is hexadecimal digits of one case, which digests and identifiers are too."""
    return _HEX.fullmatch(value) is not None or _UUID.fullmatch(value) is not None


def is_written(value: str) -> bool:
    """Whether it is words and short numbers: an identifier, a path, a version, a date, a sentence."""
    if " " in value and all(part.strip(".,!?;:()").isalpha() for part in value.split()):
        return True
    return all(_is_word(part[0]) for part in _PART.finditer(value))


def _is_word(part: str) -> bool:
    if part.isdigit():
        return True
    pieces = _PIECES.findall(part)
    if any(piece.isdigit() and len(piece) > 4 for piece in pieces):
        return False
    return len(pieces) <= 1 + len(part) // 5 and (
        len(pieces) <= 2 or all(len(p) > 2 for p in pieces if p.isalpha())
    )


def turns(value: str) -> int:
    """The number of changes between classes of characters."""
    kinds = [*map(char_class, value)]
    return sum(1 for before, after in itertools.pairwise(kinds) if before != after)


def char_class(char: str) -> str:
    """The class of a character: d for a digit, u and l for upper and lower case, o for any other."""
    return "d" if char.isdigit() else "u" if char.isupper() else "l" if char.islower() else "o"
