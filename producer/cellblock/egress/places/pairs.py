"""Key and value: ini, env, YAML, TOML, JSON, XML, HCL, properties, PHP, plists, flags, calls, query strings.

Finds the value of a telling name: after a sign on its line, in a block of lines below, or in the member
beside it that is called "value".
"""

# ruff: noqa: E501, RUF001

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from cellblock.egress.places.assessment import Setting
from cellblock.egress.places.lexicon import Name, Promise
from cellblock.egress.places.place import Place, line_start

_VALUE_CHARS = 4096
_SIGN = re.compile(
    r"(?P<close>\\{0,2}[\"'`]?[\])*_]{0,3}\\?[\"'`]?)[ \t\u00a0\u3000]{0,40}"
    r"(?P<sign>\([^()\n]{0,30}\)[ \t]?[:=]|=>|:=|\?=|->|→|⇒|={1,3}|:{1,2}|：|＝|\|{1,2}|│|┃|&(?= )|(?:[ ][\w:-]{1,30}=[\"'][^\"'<>\n]{0,80}[\"']){0,4}>|,|\((?=[\"'`]))(?:\*\*(?= ))?"
    r"(?P<blank>[ \t\u00a0\u3000]{0,40})"
)
#: ``password: str = "…"``: a type stands between name and value.
_TYPED = re.compile(
    r"[\w.]{1,30}(?:\[[^\]\n]{0,30}\]|<[^>\n]{0,30}>)?(?: ?\| ?\w{1,20}){0,3}\??(?:[ \t]{1,3}=[ \t]{1,3}|=(?=[\"']))"
)
_PREFIX = re.compile(
    r"(?:!\w{1,20}[ \t]+|(?:new )?[A-Z]\w{2,30}\((?=[\"'`])|<<(?=\")|[bruflLNR@$]{1,2}(?=[\"'`]))?"
)
_QUOTES = {"'": "'", '"': '"', "`": "`", "“": "”", "„": "“", "«": "»", "‘": "’", "「": "」"}
#: The content of a quotation, by its closing mark, and whether the mark itself is escaped. Not possessive: `re` of
#: Python 3.11.2 then keeps what a failed alternative took.
_UNTIL_CLOSED = {
    (mark, escaped): re.compile(rf"(?:[^\\\n{mark}]+|\\{f'(?!{mark})' if escaped else ''}(?s:.)?)*")
    for mark in _QUOTES.values()
    for escaped in (False, True)
}
_UNTIL = re.compile(r"[^\s\"'`\\]{1,4096}")
_SPACED_VALUE = re.compile(r"[ \t\u00a0]{1,40}(?P<quote>[\"'`]?)(?P<value>[^\s\"'`]{4,4096})")
#: The beginning of another field of a query, a cookie or a connection string.
_NEXT_FIELD = re.compile(r"[&;,](?=[A-Za-z][A-Za-z0-9_. -]{0,40}=)|[;&](?=\s|$)")
_BLOCK = re.compile(
    r"[\"'`\])]{0,2}[ \t]{0,8}[:=][ \t]{0,8}(?:!!?\w+[ \t]+)?[|>][+-]?\d?[+-]?[ \t]{0,8}(?:#[^\n]{0,100})?\r?\n"
)
_HEREDOC = re.compile(r"[^\n]{0,160}?<<[-~]?[ \t]?[\"'\\]?(?P<mark>\w{2,40})[\"']?[^\n]{0,80}\r?\n")
_TRIPLE = re.compile(r"[\"'`\])]{0,2}[ \t]{0,8}[:=][ \t]{0,8}(?P<quote>\"\"\"|'''|```)")
_BELOW = re.compile(
    r"[\"'`\])*_]{0,4}[ \t]{0,8}(?P<sign>[:=：]?)[ \t]{0,8}[>*_]{0,4}(?:[\[({][ \t]*)?\r?\n(?:[ \t]*\r?\n)?(?P<lead>[ \t>*#-]{0,24})(?P<quote>[\"'`]?)(?P<value>[^\n\"'`]{4,300})"
)
_HEADING = re.compile(r"[ \t#>*$-]{0,8}(?:(?:[^\W\d_]{1,14} )?comment: )?(?:[^\W\d_]{1,14} ){0,3}")
_BESIDE = re.compile(
    r"[\"'`]?(?:</\w{1,30}>)?[\s,;>/<({|:=\"'`]{1,60}(?:(?:[\w:-]{1,24})[\"'`]?[ \t]{0,12}[=:>][ \t]{0,3}[\"'`]?[\w.-]{1,30}[\"'`]?[\s,;]{1,40}){0,2}"
    r"[\"'`<]?(?:\w{1,20}:)?(?i:\w{0,12}value|v|default|string|val|content|defaultvalue|plaintext|secretstring|data|text)(?: [\w:]{1,20}=[\"'][^\"'\n]{0,40}[\"'])?"
    r"[\"'`]?[ \t]{0,4}(?:=>|[=:>])\s{0,40}(?P<quote>[\"'`]?)(?P<value>[^\n\"'`<]{4,1024})"
)
_LIST = re.compile(r"[\"'`\])]{0,2}[ \t]{0,8}(?:[:=]|=>)[ \t]{0,8}[\[({]\s{0,40}")
_ITEM = re.compile(
    r"\s{0,20}[\"'`](?P<value>[^\"'`\n]{4,400})[\"'`]\s{0,4},?|[ \t]{0,20}-[ \t]+[\"'`]?(?P<bare>[^\s\"'`]{4,400})[\"'`]?[ \t]*\r?\n"
)
_OPENED = re.compile(r"[\"'`]?[ \t]{0,4}:[ \t]{0,8}\r?\n")
#: ``auth=("user", "…")``
_PAIR = re.compile(
    r"[\"']?[ \t]{0,4}[=:][ \t]{0,4}[\w.]{0,40}[(\[][\"'][^\"'\n]{1,80}[\"'],[ ]{0,4}[\"'](?P<value>[^\"'\n]{4,200})[\"'][)\]]"
)
_ITEMS_MOST = 200
_COMMENT = re.compile(r"(?<![ \t])[ \t]+(?:#|//|;|--)[ \t][^\n]*$")


def signed(text: str, name: Name) -> Iterator[Place]:
    """A value after a sign: all of it if quoted, else up to a blank, and also the rest of the line."""
    sign = _SIGN.match(text, name.end)
    if sign is None:
        yield from _spaced(text, name)
        return
    what, close = sign["sign"], sign["close"]
    before = text[max(0, name.start - 2) : name.start]
    if before == "::" or (before.endswith(":") and what == ":" and not sign["blank"]):
        return  # a type, or part of an address such as an ARN
    what = ">" if what.endswith(">") and "=" in what[:-2] else what
    start = sign.end()
    in_tuple = text[max(0, name.start - 2) : name.start].rstrip(" :").endswith("{")
    if what == "," and not close.strip("])*_") and not in_tuple:
        return
    if what == ":" and (typed := _TYPED.match(text, start)):
        start = typed.end()
    prefix = _PREFIX.match(text, start)
    start = prefix.end() if prefix else start
    first = text[start : start + 1]
    escaped = first == "\\" and text[start + 1 : start + 2] in "\"'"
    if escaped:
        start, first = start + 1, text[start + 1]
    if first in _QUOTES:
        yield from _quoted(text, name, start + 1, _QUOTES[first], escaped=escaped)
        return
    if what == ",":
        return
    yield from _unquoted(text, name, start, what)


def _quoted(text: str, name: Name, start: int, closing: str, *, escaped: bool) -> Iterator[Place]:
    until = _UNTIL_CLOSED[closing, escaped].match(text, start, start + _VALUE_CHARS)
    if until and until.end() > start:
        yield Place(start, until.end(), name.promise, Setting.QUOTED)


def _unquoted(text: str, name: Name, start: int, sign: str) -> Iterator[Place]:
    line_end = text.find("\n", start, start + _VALUE_CHARS)
    line_end = min(len(text), start + _VALUE_CHARS) if line_end < 0 else line_end
    line = text[start:line_end]
    if sign == ">":  # XML: up to the next tag
        cut = line.find("<")
        if cut > 0:
            yield Place(start, start + cut, name.promise, Setting.QUOTED)
        return
    if sign in {"|", "||", "│", "┃"}:
        before = text[line_start(text, name.start) : name.start]
        if before.strip(" \t|│┃*`\"'"):  # a row of values, not name and value
            return
        cell = line.split(sign[0], 1)[0]
        bare = cell.strip()
        at = start + cell.find(bare)
        yield Place(at, at + len(bare), name.promise, Setting.CELL)
        return
    value = _UNTIL.match(text, start, line_end)
    if value is None:
        return
    found = _NEXT_FIELD.split(value[0], maxsplit=1)[0].rstrip(",;.)]}>")
    if found.startswith("{") and value[0].startswith(found + "}"):  # as ODBC quotes
        start, found = start + 1, found[1:]
    yield Place(start, start + len(found), name.promise, Setting.BARE)
    rest = _COMMENT.sub("", line).strip()
    if " " in rest and len(rest) < 120:
        yield Place(start, start + len(rest), name.promise, Setting.LINE)


def _spaced(text: str, name: Name) -> Iterator[Place]:
    value = _SPACED_VALUE.match(text, name.end)
    if value is None:
        return
    flag = text[max(0, name.start - 2) : name.start].endswith(("-", "/"))
    verb = text[name.start : name.end] == "pass" and text[max(0, name.start - 2) : name.start - 1].isalpha()
    found = value["value"].rstrip(",;.)]}>")
    quoted = bool(value["quote"])
    start = value.start("value")
    if quoted:
        close = text.find(value["quote"], start, start + 400)
        if close > 0 and "\n" not in text[start:close]:
            phrase = text[start:close].count(" ") >= 3
            sure = flag or phrase or "_" in text[name.start : name.end]
            yield Place(start, close, name.promise, Setting.QUOTED if sure else Setting.SPACED)
            return
    # names and values in two columns
    listed = start - name.end > 2 and not text[line_start(text, name.start) : name.start].strip()
    setting = Setting.BARE if flag or listed else Setting.PROSE if verb else Setting.SPACED
    yield Place(start, start + len(found), name.promise, setting)


def blocks(text: str, name: Name) -> Iterator[Place]:
    """Values in lines below: a YAML block, a text of several lines in TOML or Python, a here-document."""
    block = _BLOCK.match(text, name.end)
    if block:
        yield from _indented(text, name, block.end())
        return
    triple = _TRIPLE.match(text, name.end)
    if triple:
        end = text.find(triple["quote"], triple.end(), triple.end() + _VALUE_CHARS)
        if end > 0:
            yield from _lines(text, name, triple.end(), end)
        return
    heredoc = _HEREDOC.match(text, name.end)
    if heredoc:
        close = re.compile(rf"(?m)^[ \t]*{re.escape(heredoc['mark'])}\b").search(
            text, heredoc.end(), heredoc.end() + _VALUE_CHARS
        )
        if close:
            yield from _lines(text, name, heredoc.end(), close.start())
        return
    below = _BELOW.match(text, name.end)
    if below and (below["sign"] in {":", "："} or _is_alone(text, name, below)):
        bare = below["value"].rstrip()
        start = below.start("value")
        if below["quote"]:
            yield Place(start, start + len(bare), name.promise, Setting.QUOTED)
        elif " " not in bare:
            yield Place(start, start + len(bare.rstrip(",;")), name.promise, Setting.LINE)
        elif len(bare) < 120 and ":" not in bare:
            yield Place(start, start + len(bare), name.promise, Setting.LINE)


def _is_alone(text: str, name: Name, below: re.Match[str]) -> bool:
    """Whether the name is a heading: alone in its line, and a blank line or one of code before its value."""
    before = text[line_start(text, name.start) : name.start]
    return not below["sign"] and _HEADING.fullmatch(before) is not None and " " not in below["value"].strip()


def _indented(text: str, name: Name, start: int) -> Iterator[Place]:
    end = start
    for end in _indented_lines(text, name, start):
        if end - start >= _VALUE_CHARS:
            break
    yield from _lines(text, name, start, end)


def _indented_lines(text: str, name: Name, start: int) -> Iterator[int]:
    """The end of each line from ``start`` on that is indented more than the line of the name, or blank."""
    before = text[line_start(text, name.start) : name.start]
    indent = len(before) - len(before.lstrip(" \t"))
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        line = text[start:end]
        if line.strip() and len(line) - len(line.lstrip(" \t")) <= indent:
            return
        start = min(end + 1, len(text))
        yield start


def _lines(text: str, name: Name, start: int, end: int) -> Iterator[Place]:
    body = text[start:end]
    found = [line.strip(" \t\r\\") for line in body.split("\n")]
    found = [line for line in found if line]
    at = start
    for line in found:
        at = text.find(line, at, end)
        yield Place(at, at + len(line), name.promise, Setting.LINE)
        at += len(line)


def beside(text: str, name: Name) -> Iterator[Place]:
    """The member called "value" beside the member with the name, or the item of a list that it names."""
    match = _BESIDE.match(text, name.end)
    if match:
        value = match["value"].rstrip()
        if not match["quote"]:
            value = value.rstrip(",;)}]")
        start = match.start("value")
        yield Place(
            start, start + len(value), name.promise, Setting.QUOTED if match["quote"] else Setting.LINE
        )
    pair = _PAIR.match(text, name.end)
    if pair:
        yield Place(*pair.span("value"), Promise.CHOSEN, Setting.QUOTED)
    yield from islice(_items(text, name), _ITEMS_MOST)


def _items(text: str, name: Name) -> Iterator[Place]:
    """The items of the list behind a name."""
    opened = _LIST.match(text, name.end) or _OPENED.match(text, name.end)
    item = _ITEM.match(text, opened.end()) if opened else None
    while item is not None:
        yield Place(*item.span("value" if item["value"] else "bare"), name.promise, Setting.QUOTED)
        item = _ITEM.match(text, item.end())


class Continued:
    """Reads on where a list or a block is longer than what is read behind each name.

    What lies within one that was read to its end, under a promise as strong, is not read again: each name of
    a hostile text can begin a list that encloses all others.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._items_read: dict[Promise, int] = {}
        self._lines_read: dict[Promise, int] = {}

    def below(self, names: Iterable[Name]) -> Iterator[Place]:
        """The items and lines that :func:`beside` and :func:`blocks` leave out, for names in their order."""
        for name in names:
            if name.end >= _read_until(self._items_read, name.promise):
                for place in islice(_items(self._text, name), _ITEMS_MOST, None):
                    self._items_read[name.promise] = place.end
                    yield place
            block = _BLOCK.match(self._text, name.end)
            if block and name.end >= _read_until(self._lines_read, name.promise):
                yield from self._lines_of(name, block.end())

    def _lines_of(self, name: Name, start: int) -> Iterator[Place]:
        ends = _indented_lines(self._text, name, start)
        before = next((end for end in ends if end - start >= _VALUE_CHARS), None)
        for end in ends if before is not None else ():
            yield from _lines(self._text, name, before or 0, end)
            self._lines_read[name.promise] = before = end


def _read_until(read: dict[Promise, int], promise: Promise) -> int:
    """How far anything was read with this promise or a stronger one."""
    return max((until for told, until in read.items() if told >= promise), default=0)
