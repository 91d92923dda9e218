"""A filter that remembers what it took out, by kind and stream: what each part of a result is held to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from cellblock.contract.models import RedactionCount
from cellblock.egress.filtering import Redaction, find, redact
from cellblock.egress.secrets import Finding
from cellblock.egress.views import ReadingBudget
from cellblock_config.egress import EgressSettings


class Tally:
    """One job's redactions, counted as they are made."""

    def __init__(self, settings: EgressSettings) -> None:
        self.settings = settings
        self._budget = ReadingBudget()
        self._counted: Counter[tuple[str, str]] = Counter()

    def find(self, text: str) -> list[Finding]:
        """What would have to go; nothing is counted."""
        return find(text, self.settings, self._budget)

    def text(self, stream: str, text: str) -> str:
        """The text as it may leave."""
        if not text:
            return text
        report = redact(text, self.find(text))
        self.add(stream, report.redactions)
        return report.text

    def add(self, stream: str, redactions: Iterable[Redaction]) -> None:
        """Count what was taken out elsewhere."""
        for redaction in redactions:
            self._counted[redaction.kind, stream] += redaction.count

    def withheld(self, stream: str, found: Iterable[Finding]) -> str:
        """Count what something is withheld for, and say so."""
        found = list(found)
        self.add(stream, [Redaction(one.kind, one.start, one.end, one.how) for one in found])
        return f"withheld: it holds what may not leave ({', '.join(sorted({one.kind for one in found}))})"

    def counts(self) -> tuple[RedactionCount, ...]:
        """All of them."""
        return tuple(
            RedactionCount(kind=kind, stream=stream, count=count)
            for (kind, stream), count in sorted(self._counted.items())
        )
