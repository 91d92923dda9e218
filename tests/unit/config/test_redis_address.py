"""Addresses of Redis: what they mean, and what is said of those that mean nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock_config import RedisAddress, load_settings
from cellblock_workers.broker import broker_options

GOOD = {
    "redis://h": RedisAddress((("h", 6379),), 0, None, None, False, None),
    "redis://h:1/3": RedisAddress((("h", 1),), 3, None, None, False, None),
    "redis://:p%40ss@h/": RedisAddress((("h", 6379),), 0, None, "p@ss", False, None),
    "rediss://u:p@h:1/0": RedisAddress((("h", 1),), 0, "u", "p", True, None),
    "redis://[::1]:7/0": RedisAddress((("::1", 7),), 0, None, None, False, None),
    "redis+sentinel://u:p@a,b:2,[::1]:3/1?service=m": RedisAddress(
        (("a", 26379), ("b", 2), ("::1", 3)), 1, "u", "p", False, "m"
    ),
    "rediss+sentinel://a/0?service=m": RedisAddress((("a", 26379),), 0, None, None, True, "m"),
}


@pytest.mark.parametrize("url", GOOD)
def test_an_address_is_read(url: str) -> None:
    assert RedisAddress.parse(url) == GOOD[url]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://sentinel-pw@h", "must start with redis://"),
        ("redis://u:sentinel-pw@h:99999", "port"),
        ("redis://u:sentinel-pw@h:x", "port"),
        ("redis://u:sentinel-pw@h/x", "database"),
        ("redis://u:sentinel-pw@h/-1", "database"),
        ("redis://u:sentinel-pw@a,b/0", "several hosts"),
        ("redis+sentinel://u:sentinel-pw@a/0", "service"),
    ],
)
def test_an_address_that_is_none_says_why_and_nothing_secret(url: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as refused:
        RedisAddress.parse(url)
    assert "sentinel-pw" not in str(refused.value)


def test_celery_is_told_the_same(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.touch()
    plain = broker_options(load_settings(redis={"url": "redis://u:p%40@h:1/2"}))
    assert plain["broker_url"] == "redis://u:p%40@h:1/2"
    guarded = broker_options(
        load_settings(
            redis={
                "url": "rediss+sentinel://:p@a:1,b:2/0?service=m",
                "sentinel_password": "s",
                "tls_ca": authority,
            }
        )
    )
    assert guarded["broker_url"] == "sentinel://:p@a:1/0;sentinel://:p@b:2/0"
    assert guarded["broker_transport_options"]["master_name"] == "m"
    assert guarded["broker_transport_options"]["sentinel_kwargs"]["password"] == "s"
    assert guarded["broker_use_ssl"]["ssl_ca_certs"] == str(authority)
    own = load_settings(redis={"url": "redis://ledger", "broker_url": "redis://queues"})
    assert broker_options(own)["broker_url"] == "redis://queues:6379/0"
