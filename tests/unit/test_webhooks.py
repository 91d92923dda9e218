"""Where a webhook may go, and who it says it is from."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any, get_args

import pytest

from cellblock.contract.events import EventType
from cellblock.webhooks import sign, verify
from cellblock_config import SettingsError, load_settings
from cellblock_config.webhooks import EventName
from cellblock_workers.webhooks.addresses import AddressRefused, is_public, permitted

OURS = [
    "127.0.0.1",
    "0.0.0.0",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a00:1",
    "2002:7f00:1::",
    "2001:0:7f00:1::",
    "fe80::1",
    "fc00::1",
    "ff02::1",
    "fec0::1",
    "192.88.99.1",
    "192.0.0.9",
    "168.63.129.16",
    "3fff::1",
    "2606:4700::5efe:7f00:1",
]


def test_the_settings_know_the_events_there_are() -> None:
    assert get_args(EventName) == get_args(EventType)


@pytest.mark.parametrize("address", OURS)
def test_an_address_that_is_not_the_internets_is_refused(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    assert not is_public(ipaddress.ip_address(address))
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # Injected: a name that points at a public address first, and at this one too.
    answers: list[Any] = [(socket.AF_INET, 1, 6, "", ("8.8.8.8", 443)), (family, 1, 6, "", (address, 443))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answers)
    with pytest.raises(AddressRefused, match=r"example\.org points at .*ALLOW_PRIVATE"):
        permitted("example.org", 443, allow_private=False)
    assert permitted("example.org", 443, allow_private=True) == "8.8.8.8"


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_an_address_of_the_internet_is_permitted(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f.1", "0177.0.0.1", "localhost"])
def test_other_ways_to_write_this_host_are_seen_through(host: str) -> None:
    with pytest.raises(AddressRefused):
        permitted(host, 80, allow_private=False)


def test_a_signature_binds_body_secret_and_time() -> None:
    header = sign(b'{"a":1}', "a long enough secret", 1_000_000)
    assert verify(b'{"a":1}', header, "a long enough secret", now=1_000_100)
    assert not verify(b'{"a":2}', header, "a long enough secret", now=1_000_100)
    assert not verify(b'{"a":1}', header, "another secret", now=1_000_100)
    assert not verify(b'{"a":1}', header, "a long enough secret", now=1_000_301), "an old one may be a replay"
    assert not verify(
        b'{"a":1}', header.replace("t=1000000", "t=1000100"), "a long enough secret", now=1_000_100
    )


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "t=,v1=",
        "t=x,v1=y",
        "v1=ab",
        "t=1",
        "t=1,v1=é",
        "t=²,v1=a",
        "t=" + "9" * 5000 + ",v1=a",
        ",,=",
    ],
)
def test_a_header_that_is_none_is_no_signature(header: str | None) -> None:
    assert not verify(b"{}", header, "secret", now=1)


@pytest.mark.parametrize(
    ("webhooks", "says"),
    [
        ({"urls": ("ftp://x",), "secret": "s" * 16}, "http"),
        ({"urls": ("https://",), "secret": "s" * 16}, "name a host"),
        ({"urls": ("https://x",)}, "CELLBLOCK_WEBHOOKS_SECRET.* is not set"),
        ({"urls": ("https://x:99999",), "secret": "s" * 16}, "port"),
        ({"urls": ("https://a..b",), "secret": "s" * 16}, "host"),
        ({"urls": ("https://x",), "secret": " " * 16}, "CELLBLOCK_WEBHOOKS_SECRET.* is not set"),
        (
            {"urls": ("https://x",), "secret": "s" * 16, "events": ("agent.run.suceeded",)},
            "agent.run.succeeded",
        ),
        ({"urls": ("https://x",), "secret": "short"}, "fewer than 16 characters"),
    ],
)
def test_settings_that_cannot_work_are_refused(webhooks: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        load_settings(webhooks=webhooks)
