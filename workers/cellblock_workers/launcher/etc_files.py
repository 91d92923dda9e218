"""The names that a sandbox knows, laid over its image's own: its users, its host, its services.

They are the same in every way of making a sandbox. Other names do not resolve: there is no network to ask.
"""

from __future__ import annotations

from pathlib import Path

_USERS = (("root", 0, "/"), ("daemon", 1, "/"), ("bin", 2, "/"), ("sys", 3, "/"), ("nobody", 65_534, "/"))
_GROUPS = (
    ("root", 0),
    ("daemon", 1),
    ("bin", 2),
    ("sys", 3),
    ("tty", 5),
    ("users", 100),
    ("nogroup", 65_534),
)
_HOSTS = "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback\n"
_SWITCH = "passwd: files\ngroup: files\nshadow: files\nhosts: files\nservices: files\nprotocols: files\n"
_PROTOCOLS = (("ip", 0), ("icmp", 1), ("tcp", 6), ("udp", 17), ("ipv6", 41), ("ipv6-icmp", 58))
_SERVICES = (
    *(("echo", 7), ("discard", 9), ("daytime", 13), ("ftp", 21), ("ssh", 22), ("telnet", 23), ("smtp", 25)),
    *(
        ("time", 37),
        ("domain", 53),
        ("tftp", 69),
        ("http", 80),
        ("kerberos", 88),
        ("pop3", 110),
        ("ntp", 123),
    ),
    *(("imap2", 143), ("snmp", 161), ("ldap", 389), ("https", 443), ("submissions", 465), ("syslog", 514)),
    *(
        ("submission", 587),
        ("ldaps", 636),
        ("imaps", 993),
        ("pop3s", 995),
        ("mysql", 3306),
        ("postgresql", 5432),
    ),
)
_HOME = "/tmp/sandbox"  # noqa: S108 - the sandbox's


def etc_files(uid: int, jobs: int = 1) -> dict[str, str]:
    """The text of each file, by its path below the root.

    Args:
        uid: The job's, as its sandbox counts it.
        jobs: How many ids from this one on belong to a job, of a series in one sandbox.
    """
    ids = range(uid, uid + jobs)
    users = [*_USERS, *(("job", one, _HOME) for one in ids)]
    shells = {"root": "/bin/sh", "job": "/bin/sh"}
    passwd = [
        f"{name}:x:{one}:{one}:{name}:{home}:{shells.get(name, '/bin/false')}" for name, one, home in users
    ]
    services = [f"{name} {port}/{kind}" for name, port in _SERVICES for kind in ("tcp", "udp")]
    return {
        "etc/passwd": _lines(passwd),
        "etc/group": _lines([f"{name}:x:{one}:" for name, one in (*_GROUPS, *(("job", one) for one in ids))]),
        "etc/hosts": _HOSTS,
        "etc/nsswitch.conf": _SWITCH,
        "etc/protocols": _lines([f"{name} {number} {name.upper()}" for name, number in _PROTOCOLS]),
        "etc/services": _lines(services),
    }


def write_etc(folder: Path, uid: int, jobs: int = 1) -> list[str]:
    """Writes :func:`etc_files` below this folder, readable under any umask. Returns their paths in the
    sandbox."""
    etc = folder / "etc"
    etc.mkdir(parents=True, exist_ok=True)
    for one in (folder, etc):
        one.chmod(0o755)
    files = etc_files(uid, jobs)
    for name, text in files.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o644)
    return [f"/{name}" for name in files]


def _lines(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
