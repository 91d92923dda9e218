"""The Redis keys, from the table at the top of ``cellblock.ledger.keys``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

_SOURCE = "producer/cellblock/ledger/keys.py"
_HEAD = f"""# Redis keys

Made from `{_SOURCE}`.

| key | type | what it is, and how long it stays |
|---|---|---|
"""
_BESIDE = """
Beside them stand keys that are no part of the ledger: `<p>:webhooks:…`, the deliveries that wait or failed
(`workers/cellblock_workers/webhooks/outbox.py`), and Celery's `<p>:broker:…`
(`producer/cellblock/queue.py`), in the database of `CELLBLOCK_REDIS_BROKER_URL` where that is set. Files
named without a folder are in `producer/cellblock/ledger`; lower-case names such as `job_ttl_s` are settings,
`CELLBLOCK_LEDGER_JOB_TTL_S`.
"""
_RULE = re.compile(r"=+(?: +=+)+")


def page(root: Path) -> str:
    """The whole page. Raises :class:`ValueError` when the table of the source is not one."""
    text = ast.get_docstring(ast.parse((root / _SOURCE).read_text())) or ""
    lines = text.splitlines()
    rules = [number for number, line in enumerate(lines) if _RULE.fullmatch(line)]
    if len(rules) != 2:
        raise ValueError(f"{_SOURCE}: its docstring has no table with one rule above and one below")
    first, last = rules
    rows = "\n".join(f"| {' | '.join(row)} |" for row in _rows(lines[first : last + 1]))
    below = re.sub(r"``(.+?)``", r"`\1`", "\n".join(lines[last + 1 :]))
    return f"{_HEAD}{rows}\n{below}\n{_BESIDE}"


def _rows(table: list[str]) -> Iterator[list[str]]:
    """The cells of each row; a line with an empty first cell goes on with the row before."""
    starts = [match.start() for match in re.finditer(r"=+", table[0])]
    row: list[str] = []
    for line in table[1:-1]:
        cells = [line[begin:end].strip() for begin, end in zip(starts, [*starts[1:], None], strict=True)]
        if cells[0] and row:
            yield row
        row = cells if cells[0] else [f"{old} {more}".strip() for old, more in zip(row, cells, strict=True)]
        row = [re.sub(r"``(.+?)``", r"`\1`", cell) for cell in row]
    yield row
