"""Finds secrets in tables with a telling heading: delimited, boxed, markdown, aligned by blanks, HTML.

A heading's column is found by its number where a sign separates the cells, else by its position in the line.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from operator import itemgetter

from cellblock.egress.places.assessment import Setting
from cellblock.egress.places.lexicon import Name, Promise, promised
from cellblock.egress.places.place import Place

#: With more tables open at one place than this, 2,000 rows of each further one are read: every line of a
#: hostile text can be another heading.
_OPEN_MOST, _ROWS_BESIDE_OTHERS = 32, 2000
#: The rows behind a list of columns that can have other lists of columns between them.
_ROWS_ACROSS = 2000
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


class Tables:
    """Reads the tables of a text. Each row is read once for each form of table that it continues."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._open: dict[object, _Table] = {}  #: tables whose rows go on, by the form of their rows
        self._done = -1  #: the end of the last line that was examined as a heading

    def below(self, names: Iterable[Name]) -> Iterator[Place]:
        """The cells below headings with these names, which come in order, up to the last heading."""
        text = self._text
        for name in names:
            if name.start < self._done:
                continue
            start = text.rfind("\n", max(0, self._done), name.start) + 1 or max(0, self._done)
            end = text.find("\n", name.end)
            self._done = len(text) if end < 0 else end
            if end < 0:
                continue
            heading = _unlisted(text[start:end])
            form = _delimited(text, end, heading) or _aligned(heading)
            if form is not None:
                yield from self._read(end)
                self._opened(form, end)

    def rest(self) -> Iterator[Place]:
        """The cells of all rows that were not read yet, and those of tables in HTML and JSON."""
        yield from self._read(len(self._text))
        if "<t" in self._text:
            yield from _html(self._text)
        told = "columns" in self._text or "nsert" in self._text or "NSERT" in self._text
        if told and (_JSON_HEADS.search(self._text) or _INSERTED.search(self._text)):
            yield from _json(self._text)

    def _opened(self, form: _Form, end: int) -> None:
        """Begins a table; in a table of the same form, its telling columns count from here on."""
        table = self._open.setdefault(form.rows, _Table(form, end))
        if table.form is not form:
            for number, told in form.telling.items():
                table.form.telling[number] = max(told, table.form.telling.get(number, Promise.NONE))
        if len(self._open) > _OPEN_MOST:
            table.rows_left = min(table.rows_left, _ROWS_BESIDE_OTHERS)

    def _read(self, until: int) -> Iterator[Place]:
        """Reads the rows of all open tables that begin before ``until``."""
        for rows, table in list(self._open.items()):
            yield from table.places(self._text, until)
            if table.ended:
                del self._open[rows]


class _Form:
    """The form of a table's rows, known from its heading. ``telling``: the promises of columns, by number."""

    def __init__(self, rows: object, telling: dict[int, Promise]) -> None:
        self.rows = rows
        self.telling = telling

    def cells(self, line: str) -> Iterator[tuple[int, int, Promise]] | None:
        """Start, end and promise of every cell in a telling column; None if the line is not such a row."""
        raise NotImplementedError


class _Table:
    """A table whose rows are read one after the other."""

    def __init__(self, form: _Form, end: int) -> None:
        self.form = form
        self.ended = False
        self.rows_left = sys.maxsize
        self._end = end  #: of the last row that was read

    def places(self, text: str, until: int) -> Iterator[Place]:
        """The places in rows that begin before ``until`` and were not read yet."""
        while not self.ended and (start := self._end + 1) < until:
            end = text.find("\n", start)
            self._end = len(text) if end < 0 else end
            line = text[start : self._end]
            self.rows_left -= 1
            cells = self.form.cells(_unlisted(line)) if line.strip() and self.rows_left >= 0 else None
            self.ended = cells is None
            for first, last, told in cells or ():
                yield Place(start + first, start + last, told, Setting.CELL)


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


class _Delimited(_Form):
    """Rows whose cells are separated by a sign."""

    def __init__(self, delimiter: str, width: int, telling: dict[int, Promise]) -> None:
        super().__init__((delimiter, width), telling)
        self._delimiter = delimiter
        self._width = width

    def cells(self, line: str) -> Iterator[tuple[int, int, Promise]] | None:
        """See :class:`_Form`."""
        if _RULE.fullmatch(line):
            return iter(())
        row = _cells(line, self._delimiter)
        return self._told(row) if len(row) == self._width else None

    def _told(self, row: list[tuple[int, str]]) -> Iterator[tuple[int, int, Promise]]:
        for number, told in self.telling.items():
            where, cell = row[number]
            inner = cell.strip("\"'`*")
            where += cell.find(inner) if inner else 0
            yield where, where + len(inner), told


def _delimited(text: str, end: int, heading: str) -> _Form | None:
    """The form of rows below a delimited heading, which ends at ``end``, if there is such a row."""
    for delimiter in _DELIMITERS:
        if heading.strip().count(delimiter) < 1 or heading.lstrip().startswith(("-", "+")) or "=" in heading:
            continue
        cells = _cells(heading, delimiter)
        if any(len(cell) > 40 for _, cell in cells) or sum(bool(cell) for _, cell in cells) < 2:
            return None
        if any(cell and not _HEAD.fullmatch(cell) for _, cell in cells):
            return None
        telling = {n: told for n, (_, cell) in enumerate(cells) if (told := _heading_promise(cell))}
        if not telling:
            return None
        form = _Delimited(delimiter, len(cells), telling)
        return form if next(_Table(form, end).places(text, len(text)), None) is not None else None
    return None


class _Aligned(_Form):
    """Rows whose cells stand below their headings."""

    def __init__(self, spans: list[tuple[int, int]], telling: dict[int, Promise]) -> None:
        super().__init__(tuple(spans), telling)
        self._spans = spans

    def cells(self, line: str) -> Iterator[tuple[int, int, Promise]] | None:
        """See :class:`_Form`."""
        if _RULE.fullmatch(line):
            return iter(())
        gapped = [match.span() for match in _GAPPED.finditer(line)] if "  " in line.strip() else []
        words = [match.span() for match in _WORDS.finditer(line)]
        if not gapped and len(words) not in {len(self._spans), len(self._spans) + 1}:
            return None
        return self._told(gapped, words)

    def _told(self, *rows: list[tuple[int, int]]) -> Iterator[tuple[int, int, Promise]]:
        for row in rows:
            for number, told in self.telling.items():
                cell = _cell_below(self._spans, number, row)
                if cell is not None:
                    yield *cell, told


def _aligned(heading: str) -> _Form | None:
    spans = [match.span() for match in _GAPPED.finditer(re.sub(r"(\S) (?=\S)", "\\1 ", heading))]
    if "  " not in heading.strip():
        if not _is_heading(heading):
            return None
        spans = [match.span() for match in _WORDS.finditer(heading)]
    if len(spans) < 2 or not all(_HEAD.fullmatch(heading[a:b]) for a, b in spans):
        return None
    telling = {n: told for n, (a, b) in enumerate(spans) if (told := _heading_promise(heading[a:b]))}
    return _Aligned(spans, telling) if telling else None


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
    first = bisect_right(row, left, key=itemgetter(1))  # the first one that ends behind the heading's start
    overlapping = [cell for cell in row[first : first + 2] if cell[0] < right]
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
    columns = list(_JSON_COLUMNS.finditer(text))
    for heads, following in zip_longest(columns, columns[1:]):
        cells = [cell.strip(" \"'") for cell in (heads["heads"] or heads["columns"]).split(",")]
        telling = {n: told for n, cell in enumerate(cells) if (told := _heading_promise(cell))}
        for number, row in enumerate(_JSON_ROW.finditer(text, heads.end())):
            across = following is not None and row.start() > following.start()
            if not telling or (across and (number > _ROWS_ACROSS or following.groups() == heads.groups())):
                break
            values = list(_JSON_VALUE.finditer(text, *row.span("row")))
            for column, told in telling.items():
                if len(values) == len(cells) and values[column]["text"]:
                    yield Place(*values[column].span("text"), told, Setting.CELL)


def _cell_place(cell: re.Match[str], told: Promise) -> Place:
    bare = cell["cell"].strip()
    start = cell.start("cell") + cell["cell"].find(bare)
    return Place(start, start + len(bare), told, Setting.CELL)
