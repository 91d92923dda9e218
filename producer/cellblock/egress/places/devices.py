"""Finds secrets in commands of network equipment and databases: a name, words for the encoding, the value.

``enable secret 5 …``, ``key-string 7 …``, ``pre-shared-key ascii-text "…"``, ``IDENTIFIED BY '…'``: no sign
stands between name and value, and one or two words name the value's encoding.
"""

# ruff: noqa: E501

from __future__ import annotations

import re
from collections.abc import Iterator

from cellblock.egress.places.assessment import Setting
from cellblock.egress.places.lexicon import Name, Promise
from cellblock.egress.places.place import Place, line_end, line_start

_HOW = re.compile(
    r"(?P<how>(?:[ \t]{1,8}(?:\d{1,2}|0x\d|ascii(?:-text)?|hex(?:adecimal)?|encrypted|encoded|cipher|ciphertext|simple|plain(?:-?text)?|cleartext|clear"
    r"|irreversible-cipher|reversible|hash(?:ed)?|md5|sha(?:-?\d{1,3})?|ENC|unencrypted|hidden|local|remote|text|string|key|secret|password"
    r"|auth|priv|aes(?:[ -]?\d{3})?|des|3des|by|BY|WITH|AS|as|to|TO|is|IS|USING|using|version|v[123]c?|value|set|new|read|write|ro|rw|group|level[ ]\d{1,2}"
    r"|encrypted-password|plain-text-password-value|authentication-key|shared|phrase)){0,4})"
    r"[ \t]{1,8}(?P<quote>[\"'$]?)(?P<value>[^\s\"';]{4,400})"
)
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}|[0-9a-f:]+:[0-9a-f:]*")
_KIND = re.compile(
    r"\s\d{1,2}\Z|cipher|encrypted|ascii|hex|ENC|md5|sha|BY|by|PASSWORD|password-value|encoded", re.IGNORECASE
)
#: The first words of commands of equipment.
_COMMAND_LINE = re.compile(
    r"[ \t]*(?:set|enable|username|user|snmp-server|snmp|crypto|tacacs-server|radius-server|radius|tacacs|neighbor|key-string|key|ip|ppp|isdn|ntp|wpa-psk"
    r"|wlan|security|pre-shared-key|server-private|authentication|password|secret|local-user|super|standby|vrrp|aaa|area|router|bgp|ospf|isis"
    r"|server|tunnel-group|add|edit|config|create|alter|grant|identified|community|auth|encrypted|pass|psk|line|add|admin|system|/[a-z])\b",
    re.IGNORECASE,
)


def configured(text: str, name: Name) -> Iterator[Place]:
    """The value at the end of a command, which counts even if it is weaker than one in a sentence."""
    match = _HOW.match(text, name.end)
    if match is None:
        return
    start_of_line, end_of_line = line_start(text, name.start), line_end(text, name.end)
    before = text[start_of_line : name.start]
    value = match["value"].rstrip(",.)]}")
    start = match.start("value")
    if _ADDRESS.fullmatch(value):
        return
    told = _KIND.search(match["how"] or "") is not None
    commanded = (
        _COMMAND_LINE.match(text, start_of_line, end_of_line) is not None
        and end_of_line - start_of_line < 240
    )
    quoted = bool(match["quote"])
    if told or (commanded and (quoted or end_of_line - match.end("value") < 30)):
        promise = max(name.promise, Promise.DRAWN) if told else name.promise
        setting = Setting.QUOTED if quoted and (told or commanded) else Setting.BARE
        if len(before) < 160:
            yield Place(start, start + len(value), promise, setting)
