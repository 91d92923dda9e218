"""The wide corpus through the scanners of others, beside the filter: credsweeper, detect-secrets, secretlint.

    python -m venv C && C/bin/pip install credsweeper==1.19.5
    python -m venv D && D/bin/pip install detect-secrets==1.5.0
    cd S && npm install secretlint @secretlint/secretlint-rule-preset-recommend
    PYTHONPATH=tests python tests/bench/egress/wide_compare.py \\
        --credsweeper C/bin/credsweeper --detect-secrets D/bin/python --secretlint S

They only find secrets; what they find is taken out of the text, and the same judge looks at what is left.
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

from bench.egress.wide_score import Measured, by_cellblock, measured, show

#: A whole list at a time, for to start such a scanner takes seconds.
Batch = Callable[[list[str]], list[str]]
OUT = Path("build/bench/egress-wide-others.json")
RULES = {"rules": [{"id": "@secretlint/secretlint-rule-preset-recommend"}]}
TIMEOUT_S = 1_800
BATCH, BATCH_S = 100, 60


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


def credsweeper(program: Path) -> Batch:
    """With its own rules, filters and learned model, as it is without an option."""

    def clean(texts: list[str]) -> list[str]:
        with tempfile.TemporaryDirectory() as given:
            _write(texts, Path(given))
            report = Path(given) / "report.json"
            command: list[str | Path] = [
                program,
                "--path",
                given,
                "--save-json",
                report,
                "--no-stdout",
                "--no-error",
            ]
            subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT_S)
            found = json.loads(report.read_text())
        values: dict[int, set[str]] = {}
        for line in (line for credential in found for line in credential["line_data_list"]):
            values.setdefault(int(Path(line["path"]).stem), set()).add(line["value"])
        return [_without(text, values.get(n, set())) for n, text in enumerate(texts)]

    return clean


def secretlint(folder: Path) -> Batch:
    """It does not come back from some texts: a batch that takes longer than a minute is left as it is."""

    def clean(texts: list[str]) -> list[str]:
        cleaned: list[str] = []
        unread = 0
        for start in range(0, len(texts), BATCH):
            batch = texts[start : start + BATCH]
            try:
                cleaned += _linted(folder, batch)
            except subprocess.TimeoutExpired:
                cleaned += batch
                unread += len(batch)
        sys.stderr.write(f"secretlint: {unread} of {len(texts)} texts took longer than {BATCH_S} s\n")
        return cleaned

    return clean


def _linted(folder: Path, texts: list[str]) -> list[str]:
    with tempfile.TemporaryDirectory(dir=folder) as given:
        _write(texts, Path(given))
        rules = Path(given) / "rules.json"
        rules.write_text(json.dumps(RULES))
        report = Path(given) / "report.json"  # of a pipe it writes the first 64 KiB and ends
        program = folder / "node_modules/.bin/secretlint"
        command: list[str | Path] = [program, "--format", "json", "--secretlintrc", rules, "--output", report]
        ran = subprocess.run([*command, f"{given}/*.txt"], cwd=folder, capture_output=True, timeout=BATCH_S)
        if ran.returncode not in (0, 1) or not report.exists():
            raise RuntimeError(f"secretlint ended with {ran.returncode}: {ran.stderr.decode()[-300:]}")
        reported = json.loads(report.read_text())
    cleaned = list(texts)
    for found in reported:
        n = int(Path(found["filePath"]).stem)
        for message in sorted(found["messages"], key=lambda message: message["range"], reverse=True):
            start, end = message["range"]
            cleaned[n] = f"{cleaned[n][:start]}[found]{cleaned[n][end:]}"
    return cleaned


def _write(texts: list[str], folder: Path) -> None:
    for n, text in enumerate(texts):
        (folder / f"{n}.txt").write_text(text, errors="replace", newline="")


def _without(text: str, values: set[str]) -> str:
    for value in sorted(filter(None, values), key=len, reverse=True):
        text = text.replace(value, "[found]")
    return text


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
    parser = argparse.ArgumentParser(description="The wide corpus through other scanners.")
    parser.add_argument("--credsweeper", type=Path, help="the program")
    parser.add_argument("--detect-secrets", type=Path, help="an interpreter that has it")
    parser.add_argument("--secretlint", type=Path, help="the folder where npm installed it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=1)
    chosen = parser.parse_args()
    scanners: dict[str, Batch] = {"cellblock": lambda texts: [by_cellblock(text) for text in texts]}
    if chosen.credsweeper:
        scanners["credsweeper"] = credsweeper(chosen.credsweeper)
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
