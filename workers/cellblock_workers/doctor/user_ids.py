"""Whether the host gives the user ids of sandboxes to another user as well.

An id belongs to a sandbox alone only if no account has it, and no user may take it for a namespace of their
own (``/etc/subuid``): a user with the id can signal and trace what runs under it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from cellblock_workers.doctor.checks import Check
from cellblock_workers.launcher.user_ids import IdRange

_NAMED = 3


def user_ids_check(ranges: Sequence[IdRange], etc: Path = Path("/etc")) -> Check:
    """Which of these ranges another user has too, and the remedy. Changes nothing."""
    name = "user ids"
    shared = [*_delegated(ranges, etc / "subuid"), *_accounts(ranges, etc / "passwd")]
    if not shared:
        return Check(name, "ok", ", ".join(f"{one.name} {_span(one)}" for one in ranges))
    more = f" and {len(shared) - _NAMED} more" if len(shared) > _NAMED else ""
    remedy = (
        "who has such an id can signal sandboxes: take these ranges out of /etc/subuid "
        "(usermod --del-subuids) and give the accounts other ids, or set CELLBLOCK_LAUNCHER_FIRST_USER_ID "
        "to where nobody has any"
    )
    return Check(name, "warning", "; ".join(shared[:_NAMED]) + more, remedy)


def _delegated(ranges: Sequence[IdRange], subuid: Path) -> Iterator[str]:
    for user, first, count in _rows(subuid, 3, 1, 2):
        for one in ranges:
            if first < one.first + one.count and one.first < first + count:
                given = f"{first}-{first + count - 1}"
                yield f"/etc/subuid gives {user} {given}, which {one.name} uses ({_span(one)})"


def _accounts(ranges: Sequence[IdRange], passwd: Path) -> Iterator[str]:
    for user, uid, _ in _rows(passwd, 7, 2, 2):
        for one in ranges:
            if one.first <= uid < one.first + one.count:
                yield f"the account {user} has the id {uid}, which {one.name} uses ({_span(one)})"


def _rows(path: Path, fields: int, *places: int) -> Iterator[tuple[str, int, int]]:
    """The name and two numbers of each line that has them; none for a file that does not exist."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        parts = line.split(":")
        if len(parts) == fields and all(parts[place].isdecimal() for place in places):
            first, second = (int(parts[place]) for place in places)
            yield parts[0], first, second


def _span(one: IdRange) -> str:
    return f"{one.first}-{one.first + one.count - 1}"
