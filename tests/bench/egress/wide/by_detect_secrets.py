"""Texts out of a JSON file, the same without what detect-secrets finds in them on stdout.

Runs in an environment of its own that has detect-secrets 1.5. Its first argument is the way of scanning:
"line" as its hook for pasted lines does, or "file" as `detect-secrets scan` does.
"""

import json
import sys
import tempfile
from pathlib import Path

from detect_secrets.core.scan import scan_file, scan_line  # type: ignore[import-not-found]
from detect_secrets.settings import default_settings  # type: ignore[import-not-found]


def by_line(text: str) -> set[str]:
    return {found.secret_value for line in text.splitlines() for found in scan_line(line)}


def by_file(text: str) -> set[str]:
    with tempfile.NamedTemporaryFile("w", suffix=".txt", errors="replace") as file:
        file.write(text)
        file.flush()
        return {found.secret_value for found in scan_file(file.name)}


def main() -> None:
    find = {"line": by_line, "file": by_file}[sys.argv[1]]
    cleaned = []
    with default_settings():
        for text in json.loads(Path(sys.argv[2]).read_text()):
            left = text
            for value in sorted(filter(None, find(text)), key=len, reverse=True):
                left = left.replace(value, "[found]")
            cleaned.append(left)
    json.dump(cleaned, sys.stdout)


main()
