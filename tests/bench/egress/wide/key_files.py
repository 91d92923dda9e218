"""Key material in containers that are computed: DER, JWK members, PKCS#12, lists and arrays of bytes."""

from __future__ import annotations

import base64
import json
import textwrap
from collections.abc import Callable
from functools import partial

from bench.egress.wide.making import Rng, picked

OPEN, CLOSE = "\u00ab", "\u00bb"
RSA_ID = bytes.fromhex("300d06092a864886f70d0101010500")
P256_ID = bytes.fromhex("301306072a8648ce3d020106082a8648ce3d030107")
ED25519_HEAD = bytes.fromhex("302e020100300506032b657004220420")
PBES2_HEAD = bytes.fromhex("06092a864886f70d01050d")
PKCS12_HEAD = bytes.fromhex("06092a864886f70d010701a0")


def der(tag: int, body: bytes) -> bytes:
    size = len(body)
    if size < 128:
        return bytes([tag, size]) + body
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + body


def _integer(rng: Rng, size: int) -> bytes:
    return der(2, b"\x00" + bytes([rng.randint(128, 255)]) + rng.randbytes(size - 1))


def rsa_der(rng: Rng, size: int = 256) -> bytes:
    half = size // 2
    numbers = [_integer(rng, n) for n in (size, 3, size, half, half, half, half, half)]
    numbers[1] = bytes.fromhex("0203010001")
    return der(0x30, b"\x02\x01\x00" + b"".join(numbers))


def pkcs8_der(rng: Rng) -> bytes:
    return der(0x30, b"\x02\x01\x00" + RSA_ID + der(4, rsa_der(rng)))


def ec_der(rng: Rng) -> bytes:
    inner = der(
        0x30, b"\x02\x01\x01" + der(4, rng.randbytes(32)) + der(0xA1, der(3, b"\x00\x04" + rng.randbytes(64)))
    )
    return der(0x30, b"\x02\x01\x00" + P256_ID + der(4, inner))


def pkcs12(rng: Rng) -> bytes:
    return der(0x30, b"\x02\x01\x03" + der(0x30, PKCS12_HEAD + der(4, rng.randbytes(900))))


def some_der(rng: Rng) -> bytes:
    return rng.choice((rsa_der, pkcs8_der, ec_der, lambda rng: ED25519_HEAD + rng.randbytes(32)))(rng)


def _wrapped(data: bytes, width: int = 64) -> str:
    return "\n".join(textwrap.wrap(base64.b64encode(data).decode(), width))


def _pem(rng: Rng) -> str:
    title, data = rng.choice(
        (
            ("RSA PRIVATE KEY", rsa_der(rng)),
            ("PRIVATE KEY", pkcs8_der(rng)),
            ("EC PRIVATE KEY", ec_der(rng)[26:]),
            ("PRIVATE KEY", ED25519_HEAD + rng.randbytes(32)),
            ("ENCRYPTED PRIVATE KEY", der(0x30, PBES2_HEAD + der(4, rng.randbytes(300)))),
        )
    )
    return f"-----BEGIN {title}-----\n{OPEN}{_wrapped(data)}{CLOSE}\n-----END {title}-----\n"


def _der_base64(rng: Rng) -> str:
    shown = base64.b64encode(some_der(rng)).decode()
    return rng.choice(("{}", "privateKey={}", '"key": "{}"', "DER (base64): {}")).format(
        f"{OPEN}{shown}{CLOSE}"
    )


def _der_hex(rng: Rng) -> str:
    shown = some_der(rng).hex()
    return rng.choice(("{}", "key.der: {}", "private_key_hex = {}")).format(f"{OPEN}{shown}{CLOSE}")


def _der_bytes(rng: Rng) -> str:
    return f"private_bytes = {OPEN}{some_der(rng)!r}{CLOSE}"


def _pkcs12_base64(rng: Rng) -> str:
    shown = base64.b64encode(pkcs12(rng)).decode()
    return rng.choice(("keystore.p12: {}", "PFX_BASE64={}", "{}")).format(f"{OPEN}{shown}{CLOSE}")


def _jks_hex(rng: Rng) -> str:
    data = bytes.fromhex("feedfeed0000000200000001000000010003") + b"key" + rng.randbytes(700)
    return f"app.jks: {OPEN}{base64.b64encode(data).decode()}{CLOSE}"


def _jwk_rsa(rng: Rng) -> str:
    wide, half = picked(rng, "u", 342), [picked(rng, "u", 171) for _ in range(5)]
    names = dict(zip(("p", "q", "dp", "dq", "qi"), half, strict=True))
    key = {"kty": "RSA", "kid": picked(rng, "u", 20), "n": wide, "e": "AQAB"}
    key |= {"d": f"{OPEN}{picked(rng, 'u', 342)}{CLOSE}"} | names
    return json.dumps(key, indent=rng.choice((None, 2)), ensure_ascii=False)


def _jwk_ec(rng: Rng) -> str:
    curve, count = rng.choice((("P-256", 43), ("P-384", 64), ("secp256k1", 43)))
    x, y, d = (picked(rng, "u", count) for _ in range(3))
    return json.dumps(
        {"kty": "EC", "crv": curve, "x": x, "y": y, "d": f"{OPEN}{d}{CLOSE}"}, ensure_ascii=False
    )


def _jwk_okp(rng: Rng) -> str:
    x, d = picked(rng, "u", 43), picked(rng, "u", 43)
    return f"{{'crv': 'Ed25519', 'd': '{OPEN}{d}{CLOSE}', 'kty': 'OKP', 'x': '{x}'}}"


def _jwk_oct(rng: Rng) -> str:
    return f'{{"kty":"oct","alg":"HS256","k":"{OPEN}{picked(rng, "u", 43)}{CLOSE}"}}'


def _key(rng: Rng) -> bytes:
    return rng.randbytes(rng.choice((16, 32, 32, 64)))


def _bytes_repr(rng: Rng) -> str:
    form = rng.choice(("key = {}", "SECRET_KEY: {}", "aes_key={} iv=None", "secret={}"))
    return form.format(f"{OPEN}{_key(rng)!r}{CLOSE}")


def _int_list(rng: Rng) -> str:
    shown = ", ".join(map(str, _key(rng)))
    form = rng.choice(
        ("private_key = [{}]", "secret: bytearray([{}])", "let key: [u8; 32] = [{}];", "key=[{}]")
    )
    return form.format(f"{OPEN}{shown}{CLOSE}")


def _numpy_array(rng: Rng) -> str:
    rows = textwrap.wrap(", ".join(f"{byte:3}" for byte in _key(rng)), 66)
    shown = "\n       ".join(rows)
    return f"secret_key\narray([{OPEN}{shown}{CLOSE}], dtype=uint8)"


def _c_array(rng: Rng) -> str:
    rows = textwrap.wrap(", ".join(f"0x{byte:02x}" for byte in _key(rng)), 72)
    shown = "\n  ".join(rows)
    name = rng.choice(("aes_key", "private_key", "secret", "hmac_key"))
    return f"static const unsigned char {name}[] = {{\n  {OPEN}{shown}{CLOSE}\n}};"


def _hex_labelled(rng: Rng) -> str:
    form = rng.choice(
        ("AES key: {}", "master_key={}", "hmac_secret: {}", 'encryption_key = "{}"', "symmetric key {}")
    )
    return form.format(f"{OPEN}{_key(rng).hex()}{CLOSE}")


def _hexdump(rng: Rng) -> str:
    data = ED25519_HEAD + rng.randbytes(32)
    rows = [
        f"{at:08x}  {data[at : at + 8].hex(' ')}  {data[at + 8 : at + 16].hex(' ')}"
        for at in range(0, 48, 16)
    ]
    shown = "\n".join(rows)
    return f"$ hexdump key.der\n{OPEN}{shown}{CLOSE}"


def _big_integer(rng: Rng) -> str:
    d = int.from_bytes(rng.randbytes(256), "big")
    return f"n = {int.from_bytes(rng.randbytes(256), 'big')}\ne = 65537\nd = {OPEN}{d}{CLOSE}"


def _scalar(rng: Rng) -> str:
    d = int.from_bytes(rng.randbytes(32), "big")
    form = rng.choice(
        ("private exponent: {}", "secret scalar d = {}", "EllipticCurvePrivateNumbers(private_value={})")
    )
    return form.format(f"{OPEN}{d}{CLOSE}")


def _openssh_blob(rng: Rng) -> str:
    data = (
        b"openssh-key-v1\x00\x00\x00\x00\x04none\x00\x00\x00\x04none\x00\x00\x00\x00\x00\x00\x00\x01"
        + rng.randbytes(260)
    )
    title, shown = "OPENSSH PRIVATE KEY", _wrapped(data, 70)
    return f"-----BEGIN {title}-----\n{OPEN}{shown}{CLOSE}\n-----END {title}-----"


MARKED = {
    "pem-computed",
    "der-base64",
    "der-hex",
    "der-bytes",
    "jks-base64",
    "hexdump-of-key",
    "openssh-computed",
}
_MAKERS: dict[str, Callable[[Rng], str]] = {
    "pem-computed": _pem,
    "der-base64": _der_base64,
    "der-hex": _der_hex,
    "der-bytes": _der_bytes,
    "pkcs12-base64": _pkcs12_base64,
    "jks-base64": _jks_hex,
    "jwk-rsa": _jwk_rsa,
    "jwk-ec": _jwk_ec,
    "jwk-okp": _jwk_okp,
    "jwk-symmetric": _jwk_oct,
    "bytes-repr": _bytes_repr,
    "list-of-ints": _int_list,
    "numpy-array": _numpy_array,
    "c-array": _c_array,
    "hex-labelled": _hex_labelled,
    "hexdump-of-key": _hexdump,
    "rsa-numbers": _big_integer,
    "scalar": _scalar,
    "openssh-computed": _openssh_blob,
}


def _marked(rng: Rng, kind: str) -> tuple[str, bool]:
    return _MAKERS[kind](rng), kind in MARKED


KEY_FILES: dict[str, Callable[[Rng], tuple[str, bool]]] = {
    kind: partial(_marked, kind=kind) for kind in _MAKERS
}
