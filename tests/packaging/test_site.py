"""The site of the documents builds, has every page and every link, and loads nothing from elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import cellblock
from parts import REPOSITORY

MKDOCS = Path(sys.executable).with_name("mkdocs")


@pytest.mark.long("builds the whole site")
@pytest.mark.timeout(180)
def test_the_site_builds_and_needs_no_network(tmp_path: Path) -> None:
    subprocess.run(
        [MKDOCS, "build", "--quiet", "--strict", "--site-dir", tmp_path],
        cwd=REPOSITORY,
        check=True,
        timeout=150,
    )
    pages = {page.relative_to(tmp_path).as_posix(): page.read_text() for page in tmp_path.rglob("*.html")}
    assert {"index.html", "quickstart.html", "adr/index.html", "command-line.html"} < set(pages)
    api = pages["python-api.html"]
    assert all(f">{name}<" in api for name in cellblock.__all__ if name != "__version__")
    loaded = re.compile(r"<(?:script|img|link)\b[^>]*(?:src|href)=\"?(?:https?:)?//[^>]*>")
    assert not {name: loaded.findall(text) for name, text in pages.items() if loaded.search(text)}


@pytest.mark.long("builds the whole site")
@pytest.mark.timeout(180)
def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path) -> None:
    copy = tmp_path / "repository"
    tracked = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, check=True, capture_output=True, text=True)
    for name in tracked.stdout.split():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((REPOSITORY / name).read_bytes())
    page = copy / "docs/results.md"
    page.write_text(f"{page.read_text()}\n[there](nowhere.md)\n")
    done = subprocess.run(
        [MKDOCS, "build", "--strict", "--site-dir", tmp_path / "site"],
        cwd=copy,
        check=False,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode != 0
    assert "nowhere.md" in done.stderr
