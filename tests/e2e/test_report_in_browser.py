"""The report as a browser shows it: nothing in it runs, nothing is asked for, and it fits its window.

Each look is a page of a server here, which notes what else it is asked for. The same look at a page where the
same texts are HTML sees all of it: so would it here.
"""

from __future__ import annotations

import json
import re
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from browser import chromium
from cellblock.evaluation.comparison import compare, write_comparison
from cellblock.evaluation.report import write_report
from folders import hostile, hostile_folder, result_folder, trial

POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')

#: A page in a frame of this width in pixels, all of it unfolded: its width within, without a scroll bar, the
#: width of its content, and the content's height.
MEASURE = """<!doctype html><title>measure</title>
<body><iframe src="/page" style="width:{width}px; height:900px" onload="
  const page = this.contentDocument, root = page.documentElement;
  for (const one of page.querySelectorAll('details')) one.open = true;
  const found = [this.contentWindow.innerWidth, root.clientWidth, root.scrollWidth, page.body.scrollHeight];
  document.body.innerHTML = '<output>' + JSON.stringify(found) + '</output>'">
</iframe></body>"""


@dataclass
class Site:
    """A server on this machine: what it gives by path, and which other paths it was asked for."""

    address: str = ""
    pages: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)


@contextmanager
def serving() -> Iterator[Site]:
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = site.pages.get(self.path)
            if page is None:
                site.asked.append(self.path)
            self.send_response(404 if page is None else 200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write((page or "").encode())

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        site.address = f"http://127.0.0.1:{server.server_port}"
        yield site
        server.shutdown()


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as one:
        yield one


class Dom(HTMLParser):
    """The elements that the browser made."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.titles: list[str] = []
        self._in_title = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._in_title = tag == "title"

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.titles.append(data)
            self._in_title = False


@dataclass(frozen=True)
class Look:
    """What one page did."""

    title: str
    elements: list[tuple[str, dict[str, str | None]]]
    console: list[str]


def look_at(site: Site, folder: Path, page: str) -> Look:
    site.pages = {"/page": page}
    site.asked.clear()
    done = chromium(folder, "--dump-dom", f"{site.address}/page")
    dom = Dom(done.stdout)
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return Look(dom.titles[0], dom.elements, console)


def pages(site: Site, folder: Path) -> dict[str, str]:
    """Both kinds of page, of runs that do their worst."""
    a = hostile_folder(folder / "a", site.address)
    b = result_folder(folder / "b", [(text, trial("passed")) for text in hostile(site.address)])
    for name, (first, second) in {"worse": (b, a), "better": (a, b)}.items():
        names = ("".join(hostile(site.address)), "B")
        write_comparison(compare(first, second), folder / f"{name}.html", names)
    report = write_report(a, {str(number): text for number, text in enumerate(hostile(site.address))})
    return {
        "report": report.read_text(),
        **{name: (folder / f"{name}.html").read_text() for name in ("worse", "better")},
    }


def test_nothing_runs_and_nothing_is_asked_for(site: Site, tmp_path: Path) -> None:
    for name, page in pages(site, tmp_path).items():
        found = look_at(site, tmp_path, page)
        assert found.title.startswith(("Evaluation: 12 samples", "Comparison of <script>")), name
        assert site.asked == [], name
        assert found.console == [], name
        for tag, attrs in found.elements:
            assert tag not in {"script", "img", "image", "iframe", "link", "base", "form", "object"}, name
            assert not [one for one in attrs if one.startswith("on") or one == "src"], (name, tag, attrs)
            assert (attrs.get("href") or "#").startswith("#"), (name, tag, attrs)


def test_the_same_look_sees_what_a_page_does(site: Site, tmp_path: Path) -> None:
    texts = [text for text in hostile(site.address) if "refresh" not in text]
    crude = "<!doctype html><title>crude</title>{policy}<body>" + "".join(texts)
    found = look_at(site, tmp_path, crude.replace("{policy}", ""))
    assert found.title == "owned"
    assert {"/fetch", "/script", "/img", "/css", "/frame", "/link"} <= set(site.asked)
    assert {"script", "img", "iframe"} <= {tag for tag, _ in found.elements}

    policy = POLICY.search(write_report(hostile_folder(tmp_path / "a", site.address)).read_text())
    assert policy
    found = look_at(site, tmp_path, crude.replace("{policy}", policy[0]))
    assert found.title == "crude", "the policy alone lets nothing run"
    assert site.asked == [], "nor does it let anything be loaded"
    assert any("Content Security Policy" in line for line in found.console)


@pytest.mark.parametrize("width", [400, 1600])
def test_no_page_scrolls_sideways(site: Site, tmp_path: Path, width: int) -> None:
    for name, page in pages(site, tmp_path).items():
        window, seen, whole, high = measured(site, tmp_path, page, width)
        assert (window, seen) == (width, width)
        assert whole <= seen, name
        assert high > 900, name


def test_the_measure_sees_a_page_that_scrolls_sideways(site: Site, tmp_path: Path) -> None:
    page = "<!doctype html><details><summary>more</summary><div style='width:900px'>wide</div></details>"
    assert measured(site, tmp_path, page, 400)[2] >= 900
    assert measured(site, tmp_path, page, 1600)[2] == 1600


def measured(site: Site, folder: Path, page: str, width: int) -> list[int]:
    """What ``MEASURE`` finds. A frame, as a window has a least width of its own."""
    site.pages = {"/page": page, "/measure": MEASURE.replace("{width}", str(width))}
    done = chromium(folder, "--window-size=1800,1000", "--dump-dom", f"{site.address}/measure")
    found = re.search(r"<output>(.*)</output>", done.stdout)
    assert found, done.stdout[:2_000]
    numbers: list[int] = json.loads(found[1])
    return numbers


def test_it_is_drawn_light_and_dark(site: Site, tmp_path: Path) -> None:
    site.pages = {"/page": pages(site, tmp_path)["report"]}
    dark = {}
    for scheme, number in (("light", 1), ("dark", 0)):
        picture = tmp_path / f"{scheme}.png"
        chromium(
            tmp_path,
            f"--blink-settings=preferredColorScheme={number}",
            *("--window-size=900,700", f"--screenshot={picture}", f"{site.address}/page"),
        )
        dark[scheme] = first_pixel(picture)
    assert dark["light"] == (0xF5, 0xF6, 0xF9)
    assert dark["dark"] == (0x10, 0x13, 0x1A)


def first_pixel(picture: Path) -> tuple[int, int, int]:
    """The upper left corner of a PNG of eight bits a colour, whose first row has no pixel before it."""
    data, at, packed = picture.read_bytes(), 8, b""
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        if data[at + 4 : at + 8] == b"IDAT":
            packed += data[at + 8 : at + 8 + length]
        at += length + 12
    row = zlib.decompress(packed)
    return row[1], row[2], row[3]
