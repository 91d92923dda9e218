"""A real browser, without a window."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def chromium(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A browser that finds nobody but this machine."""
    binary = shutil.which("chromium")
    assert binary, "chromium is missing; run the tests with: make test"
    command = [binary, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile"]
    command += ["--disable-background-networking", "--enable-logging=stderr", "--v=0"]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--hide-scrollbars"]
    return subprocess.run(
        [*command, *options], capture_output=True, text=True, timeout=50, check=True, cwd=folder
    )
