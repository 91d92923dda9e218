"""What MkDocs calls while it builds the site: it adds the made pages, and makes all links fit."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(_ROOT / "docs"), str(_ROOT / "producer"), str(_ROOT / "config")]

from site_pages import command_line, decisions, events, python_api, redis_keys  # noqa: E402

#: Documents that stand at the root of the repository, and their names in the site.
_FROM_ROOT = {
    "README.md": "index.md",
    **{f"{name}.md": f"{name}.md" for name in ("ARCHITECTURE", "CHANGELOG", "CONTRIBUTING", "SECURITY")},
}
_MADE = {
    "adr/index.md": decisions,
    "command-line.md": command_line,
    "events.md": events,
    "python-api.md": python_api,
    "redis-keys.md": redis_keys,
}
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)")
_ROLE = re.compile(r":(?:class|func|meth|mod|attr):(?=<code>)")
_KIND_OF_BLOCK = re.compile(r"^(\s*```[a-z]+) .*$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the documents of the root and the made pages."""
    for name, uri in _FROM_ROOT.items():
        files.append(File.generated(config, uri, content=(_ROOT / name).read_text()))
    for uri, module in _MADE.items():
        files.append(File.generated(config, uri, content=module.page(_ROOT)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Points links into the site, and drops what only the tests read in the head of a code block."""
    uri = page.file.src_uri
    here = _ROOT if uri in _FROM_ROOT.values() else _ROOT / "docs" / Path(uri).parent
    markdown = _KIND_OF_BLOCK.sub(r"\1", markdown)
    return _LINK.sub(lambda link: _into_site(link, here=here, uri=uri, files=files), markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Drops the roles of docstrings, which Markdown does not know."""
    return _ROLE.sub("", html)


def _into_site(link: re.Match[str], *, here: Path, uri: str, files: Files) -> str:
    """The link as it is in the site; of a file that is in the repository alone, its name.

    A link that leads nowhere stays as it is, so that the strict build fails at it.
    """
    text, target, anchor = link[1], link[2], link[3] or ""
    path = (here / target).resolve()
    if not path.is_relative_to(_ROOT) or not path.exists():
        return link[0]
    within = path.relative_to(_ROOT).as_posix()
    found = _FROM_ROOT.get(within, within.removeprefix("docs/"))
    if path.is_dir():
        found = f"{found}/index.md"
    if files.get_file_from_path(found) is None:
        return f"{text} (`{within}`)"
    return f"[{text}]({'../' * uri.count('/')}{found}{anchor})"
