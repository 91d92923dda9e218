"""Finds secrets in tables with a telling heading: delimited, boxed, markdown, aligned by blanks, HTML.

A heading's column is found by its number where a sign separates the cells, else by its position in the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cellblock.egress.places.assessment import Setting
from cellblock.egress.places.lexicon import Name, Promise, promised
from cellblock.egress.places.place import Place

_ROWS_MOST, _LINE_CHARS = 2000, 2000
_DELIMITERS = ("|", "│", "┃", "║", "\t", ";", ",", "&")
_RULE = re.compile("[\\s|+=:\u2500-\u257f-]*")
_GAPPED = re.compile(r"\S+(?: \S+)*")
_WORDS = re.compile(r"\S+")
_HTML_ROW = re.compile(r"<tr\b[^>]{0,200}>(?P<row>(?:(?!</tr).){1,4000})</tr", re.DOTALL | re.IGNORECASE)
_HTML_CELL = re.compile(
    r"<t[hd]\b[^>]{0,200}>\s*(?:<(?:code|b|tt|span|strong)[^>]{0,80}>)?(?P<cell>[^<]{0,500})", re.IGNORECASE
)


_HEAD = re.compile(r"[\"'*`#]{0,2}[^\W\d_][\w.-]{0,30}(?: \(?[^\W\d_][\w.-]{0,24}\)?){0,3}[\"'*`]{0,2}|[#№]")
_LISTED = re.compile(r"[^\[\]\n,|]{0,24}\[(?P<row>[^\[\]\n]+)\],?\s*")
#: The first line of a text that is the value of a member.
_IN_MEMBER = re.compile(r"[ {\t]{0,8}[\"'][\w .-]{1,30}[\"'][ ]?:[ ]?[\"'](?P<row>[^\"'\n]+)[\"'},\s]{0,4}")
#: Every such table begins with one of these, and most texts have neither.
_JSON_HEADS = re.compile(r"(?:columns|fields|headers?|names)[\"']?\s{0,4}[:=]\s{0,4}[\[(]")
_INSERTED = re.compile(r"[nN][sS\u017f][eE][rR][tT]\s")
_JSON_COLUMNS = re.compile(
    r"[\"']?(?:columns|fields|headers?|names)[\"']?\s{0,4}[:=]\s{0,4}[\[(](?P<heads>[^\[\]()]{4,600})[\])]"
    r"|(?i:insert\s{1,8}into)\s{1,8}[^\s()]{1,80}\s{0,8}\((?P<columns>[^()]{4,600})\)\s{0,8}(?i:values)"
)
_JSON_ROW = re.compile(r"[\[(](?P<row>[^\[\]()]{2,2000})[\])]")
_JSON_VALUE = re.compile(r"[\"'](?P<text>[^\"'\n]{0,400})[\"']|[^\s,\"']{1,60}")


def columns(text: str, found: list[Name]) -> Iterator[Place]:
    """Every cell below a telling heading."""
    done = -1
    for name in found:
        if name.start < done:
            continue
        start = text.rfind("\n", 0, name.start) + 1
        end = text.find("\n", name.end)
        if end < 0 or end - start > _LINE_CHARS:
            continue
        heading = _unlisted(text[start:end])
        places = [*_delimited(text, start, end, heading)] or [*_aligned(text, start, end, heading)]
        done = end
        yield from places
    if "<t" in text and found:
        yield from _html(text)
    told = found and ("columns" in text or "nsert" in text or "NSERT" in text)
    if told and (_JSON_HEADS.search(text) or _INSERTED.search(text)):
        yield from _json(text)


def _rows(text: str, end: int) -> Iterator[tuple[int, str]]:
    for _ in range(_ROWS_MOST):
        start = end + 1
        if start >= len(text):
            return
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        line = text[start:end]
        if not line.strip():
            return
        if len(line) > _LINE_CHARS:
            return
        yield start, _unlisted(line)


def _unlisted(line: str) -> str:
    """A row printed as a list, with blanks in place of its brackets and the text before them."""
    match = _LISTED.fullmatch(line) or _IN_MEMBER.fullmatch(line)
    return line if match is None else f"{' ' * match.start('row')}{match['row']}".ljust(len(line))


def _cells(line: str, delimiter: str) -> list[tuple[int, str]]:
    if delimiter in ",;\t" and '"' in line:
        return _quoted_cells(line, delimiter)
    cells, at = [], 0
    if delimiter == "┃" and "┃" not in line:
        delimiter = "│"
    if delimiter == "&":
        line = line.partition("\\\\")[0]
    for cell in line.split(delimiter):
        bare = cell.strip()
        cells.append((at + cell.find(bare), bare))
        at += len(cell) + 1
    return cells


def _quoted_cells(line: str, delimiter: str) -> list[tuple[int, str]]:
    cells, start, inside = [], 0, False
    for at, char in enumerate(line + delimiter):
        if char == '"':
            inside = not inside
        elif char == delimiter and not inside:
            bare = line[start:at].strip().strip('"')
            cells.append((start + line[start:at].find(bare), bare))
            start = at + 1
    return cells


def _heading_promise(cell: str) -> Promise:
    """The promise of a heading of up to four words."""
    parts = re.findall(r"[\w.-]+", cell.strip("\"'`*"))
    if not parts or len(parts) > 4 or len(cell) > 40:
        return Promise.NONE
    told = promised("_".join(parts))
    return Promise.NONE if told is Promise.FAINT and "key" in parts[-1].lower() else told


def _delimited(text: str, start: int, end: int, heading: str) -> Iterator[Place]:
    for delimiter in _DELIMITERS:
        if heading.strip().count(delimiter) < 1 or heading.lstrip().startswith(("-", "+")) or "=" in heading:
            continue
        cells = _cells(heading, delimiter)
        if any(len(cell) > 40 for _, cell in cells) or sum(bool(cell) for _, cell in cells) < 2:
            return
        if any(cell and not _HEAD.fullmatch(cell) for _, cell in cells):
            return
        telling = {n: told for n, (_, cell) in enumerate(cells) if (told := _heading_promise(cell))}
        if not telling:
            return
        for at, line in _rows(text, end):
            if _RULE.fullmatch(line):
                continue
            row = _cells(line, delimiter)
            if len(row) != len(cells):
                return
            for number, told in telling.items():
                where, cell = row[number]
                inner = cell.strip("\"'`*")
                where += cell.find(inner) if inner else 0
                yield Place(at + where, at + where + len(inner), told, Setting.CELL)
        return


def _aligned(text: str, start: int, end: int, heading: str) -> Iterator[Place]:  # noqa: C901
    spans = [match.span() for match in _GAPPED.finditer(re.sub(r"(\S) (?=\S)", "\\1 ", heading))]
    if "  " not in heading.strip():
        if not _is_heading(heading):
            return
        spans = [match.span() for match in _WORDS.finditer(heading)]
    if len(spans) < 2 or not all(_HEAD.fullmatch(heading[a:b]) for a, b in spans):
        return
    telling = {n: told for n, (a, b) in enumerate(spans) if (told := _heading_promise(heading[a:b]))}
    if not telling:
        return
    for at, line in _rows(text, end):
        if _RULE.fullmatch(line):
            continue
        gapped = [match.span() for match in _GAPPED.finditer(line)] if "  " in line.strip() else []
        words = [match.span() for match in _WORDS.finditer(line)]
        if not gapped and len(words) not in {len(spans), len(spans) + 1}:
            return
        for row in (gapped, words):
            for number, told in telling.items():
                cell = _cell_below(spans, number, row)
                if cell is not None:
                    yield Place(at + cell[0], at + cell[1], told, Setting.CELL)


def _is_heading(heading: str) -> bool:
    """Whether words separated by one blank are headings: few, and all in lower case or all capitalised."""
    words = heading.split()
    return 2 <= len(words) <= 8 and (all(w[0].isupper() for w in words) or all(map(str.islower, words)))


def _cell_below(
    spans: list[tuple[int, int]], number: int, row: list[tuple[int, int]]
) -> tuple[int, int] | None:
    """The cell below a heading: by number if there are as many cells as headings, else by position."""
    if len(row) == len(spans):
        return row[number]
    if len(row) == len(spans) + 1 and row and row[0][0] < spans[0][0]:  # an index before the first column
        return row[number + 1]
    left, right = spans[number]
    overlapping = [cell for cell in row if cell[0] < right and cell[1] > left]
    return overlapping[0] if len(overlapping) == 1 else None


def _html(text: str) -> Iterator[Place]:
    telling: dict[int, Promise] = {}
    for row in _HTML_ROW.finditer(text):
        cells = list(_HTML_CELL.finditer(text, *row.span("row")))
        heads = {n: told for n, cell in enumerate(cells) if (told := _heading_promise(cell["cell"].strip()))}
        titled = len(cells) > 1 and row["row"].lower().count("<th") == len(cells)
        if titled or (heads and len(cells) > 2):
            telling = heads
            continue
        if heads and len(cells) == 2:  # a name and its value
            yield _cell_place(cells[1], next(iter(heads.values())))
        for number, told in telling.items():
            if number < len(cells):
                yield _cell_place(cells[number], told)


def _json(text: str) -> Iterator[Place]:
    """Tables in JSON with the names of columns in one list and rows in others."""
    for heads in _JSON_COLUMNS.finditer(text):
        cells = [cell.strip(" \"'") for cell in (heads["heads"] or heads["columns"]).split(",")]
        telling = {n: told for n, cell in enumerate(cells) if (told := _heading_promise(cell))}
        for number, row in enumerate(_JSON_ROW.finditer(text, heads.end())):
            if number > _ROWS_MOST or not telling:
                break
            values = list(_JSON_VALUE.finditer(text, *row.span("row")))
            for column, told in telling.items():
                if len(values) == len(cells) and values[column]["text"]:
                    yield Place(*values[column].span("text"), told, Setting.CELL)


def _cell_place(cell: re.Match[str], told: Promise) -> Place:
    bare = cell["cell"].strip()
    start = cell.start("cell") + cell["cell"].find(bare)
    return Place(start, start + len(bare), told, Setting.CELL)
