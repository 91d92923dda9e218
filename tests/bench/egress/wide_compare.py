"""The wide corpus through two scanners of others, beside the filter: detect-secrets and secretlint.

    python -m venv D && D/bin/pip install detect-secrets==1.5.0
    cd S && npm install secretlint @secretlint/secretlint-rule-preset-recommend
    PYTHONPATH=tests python tests/bench/egress/wide_compare.py --detect-secrets D/bin/python --secretlint S

Both only find secrets; what they find is taken out of the text, and the same judge looks at what is left.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from bench.egress.wide_score import Measured, measured, show

#: A whole list at a time, for to start such a scanner takes seconds.
Batch = Callable[[list[str]], list[str]]
OUT = Path("build/bench/egress-wide-others.json")
RULES = {"rules": [{"id": "@secretlint/secretlint-rule-preset-recommend"}]}
TIMEOUT_S = 1_800


def detect_secrets(python: Path, mode: str) -> Batch:
    script = Path(__file__).parent / "wide/by_detect_secrets.py"

    def clean(texts: list[str]) -> list[str]:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(texts, file)
            file.flush()
            ran = subprocess.run(
                [python, script, mode, file.name], check=True, capture_output=True, timeout=TIMEOUT_S
            )
        return [str(text) for text in json.loads(ran.stdout)]

    return clean


def secretlint(folder: Path) -> Batch:
    def clean(texts: list[str]) -> list[str]:
        with tempfile.TemporaryDirectory(dir=folder) as given:
            for n, text in enumerate(texts):
                (Path(given) / f"{n}.txt").write_text(text, errors="replace", newline="")
            rules = Path(given) / "rules.json"
            rules.write_text(json.dumps(RULES))
            command: list[str | Path] = [
                "npx",
                "secretlint",
                "--format",
                "json",
                "--secretlintrc",
                rules,
                f"{given}/*.txt",
            ]
            ran = subprocess.run(command, cwd=folder, capture_output=True, timeout=TIMEOUT_S)
        if ran.returncode not in (0, 1):
            raise RuntimeError(f"secretlint ended with {ran.returncode}: {ran.stderr.decode()[-300:]}")
        cleaned = list(texts)
        for found in json.loads(ran.stdout):
            n = int(Path(found["filePath"]).stem)
            for message in sorted(found["messages"], key=lambda message: message["range"], reverse=True):
                start, end = message["range"]
                cleaned[n] = f"{cleaned[n][:start]}[found]{cleaned[n][end:]}"
        return cleaned

    return clean


def measured_in_batch(clean: Batch, seed: int, repeats: int) -> Measured:
    """Twice over the same corpus: once to see all texts, once with what the scanner left of each."""
    seen: dict[str, None] = {}

    def note(text: str) -> str:
        seen[text] = None
        return text

    measured(note, seed=seed, repeats=repeats)
    texts = list(seen)
    left = dict(zip(texts, clean(texts), strict=True))
    return measured(left.__getitem__, seed=seed, repeats=repeats)


def main() -> int:
    parser = argparse.ArgumentParser(description="Two other scanners on the wide corpus.")
    parser.add_argument("--detect-secrets", type=Path, help="an interpreter that has it")
    parser.add_argument("--secretlint", type=Path, help="the folder where npm installed it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=1)
    chosen = parser.parse_args()
    scanners: dict[str, Batch] = {}
    if chosen.detect_secrets:
        scanners["detect-secrets by line"] = detect_secrets(chosen.detect_secrets, "line")
        scanners["detect-secrets by file"] = detect_secrets(chosen.detect_secrets, "file")
    if chosen.secretlint:
        scanners["secretlint"] = secretlint(chosen.secretlint.resolve())
    console = Console(width=None if sys.stdout.isatty() else 110)
    summaries = {}
    for name, clean in scanners.items():
        console.rule(name)
        found = measured_in_batch(clean, seed=chosen.seed, repeats=chosen.repeats)
        show(console, found, most=0)
        summaries[name] = found.summary()
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(summaries, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
