"""Tokens that begin with a word of their issuer: a few small letters, a sign, and what was drawn.

Which issuer it is does not matter. Identifiers are written the same, so that the words they begin with are
left out, and what follows has to be drawn beyond doubt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cellblock.egress.values import forms
from cellblock.egress.values.scorer import score

KIND = "prefixed_token"
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9_/.+=@%-])(?P<prefix>[A-Za-z][A-Za-z0-9]{1,11}(?:[_.-][A-Za-z0-9]{1,12}){0,3}?[_.-])"
    r"(?P<body>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[A-Za-z0-9]{20,}(?:[_.-][A-Za-z0-9_-]{4,}){0,3})(?![A-Za-z0-9/+@])"
)
#: Words that say it is a secret, and those of identifiers.
_SAYS = frozenset(
    [
        "live",
        "test",
        "prod",
        "production",
        "sandbox",
        "sk",
        "sec",
        "secret",
        "pat",
        "pats",
        "key",
        "apikey",
        "api",
        "token",
        "tok",
        "priv",
        "private",
        "auth",
        "oat",
        "refresh",
        "access",
        "cred",
        "pk",
        "lk",
        "rk",
        "at",
        "rt",
        "svc",
        "sa",
    ]
)
_IDENTIFIES = frozenset(
    [
        "chatcmpl",
        "cmpl",
        "msg",
        "req",
        "request",
        "run",
        "call",
        "toolu",
        "cus",
        "pi",
        "price",
        "sub",
        "in",
        "evt",
        "event",
        "acct",
        "ch",
        "file",
        "asst",
        "thread",
        "step",
        "vs",
        "resp",
        "batch",
        "job",
        "task",
        "user",
        "org",
        "proj",
        "project",
        "session",
        "trace",
        "span",
        "id",
        "tx",
        "order",
        "inv",
        "img",
        "image",
        "doc",
        "node",
        "pod",
        "build",
        "commit",
        "model",
        "ds",
        "exp",
        "sha",
        "md5",
        "uuid",
        "ref",
        "branch",
        "bundle",
        "chunk",
        "main",
        "index",
        "app",
        "vendor",
        "runtime",
        "pk",
        "page",
        "post",
        "item",
        "product",
        "sku",
        "device",
        "host",
        "vm",
        "vol",
        "snap",
        "subnet",
        "vpc",
        "sg",
        "eni",
        "ami",
        "arn",
        "rtb",
        "igw",
        "nat",
        "eip",
        "lb",
        "tg",
        "db",
        "dbi",
        "part",
        "blob",
        "upload",
        "obj",
        "object",
        "etag",
        "rev",
        "release",
        "cid",
        "cluster",
        "container",
        "layer",
        "digest",
        "sess",
        "conv",
        "conversation",
        "ep",
        "view",
        "form",
        "field",
        "css",
        "js",
        "static",
        "asset",
        "worker",
        "tmp",
        "temp",
        "cache",
        "log",
        "data",
        "test_id",
        "trial",
    ]
)
#: What every one of them has; cheaper to look for.
_BODY = re.compile(r"[_.-](?:[A-Za-z0-9]{20}|[0-9a-f]{8}-[0-9a-f]{4}-)")
_DRAWN_LEAST = 24
_SURELY_DRAWN = 3.0
#: As long as 16, 32 or 64 bytes in base64url are: what seems to be a prefix is drawn like the rest.
_WHOLE_CHARS = {22, 43, 86}
_WORD = re.compile(r"(?:[a-z]{2,}|[A-Z]{2,})\d{0,2}|[A-Za-z]?\d{1,2}|[A-Z][a-z]+|[A-Z]{2,}[a-z]")
_PARTS = re.compile(r"[_.-]")


def find(text: str) -> Iterator[tuple[str, int, int]]:
    """Kind and place of each."""
    for match in _TOKEN.finditer(text) if _BODY.search(text) else ():
        words = re.findall(r"[a-z]+|[A-Z]+", match["prefix"])
        first, said = words[0].lower(), any(word.lower() in _SAYS for word in words)
        if first in _IDENTIFIES or any(len(word) > 8 for word in words):
            continue
        if not all(map(_WORD.fullmatch, _PARTS.split(match["prefix"].rstrip("_.-")))):
            continue  # a part of something drawn, such as base64url
        if not said and len(match[0]) in _WHOLE_CHARS:
            continue
        body = match["body"]
        if forms.is_hex(body):
            if said and len(body) >= 32:
                yield KIND, *match.span()
            continue
        body = _PARTS.split(body)[0]  # a dotted name has digits in its other parts
        if score(body) < _SURELY_DRAWN:
            continue
        classes = {*map(forms.char_class, body)}
        if (
            {"l", "u", "d"} <= classes
            and forms.turns(body) * 3 >= len(body)
            and len(body) >= (20 if said else _DRAWN_LEAST)
        ):
            yield KIND, *match.span()
