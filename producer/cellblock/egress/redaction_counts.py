"""A filter for the parts of a result that counts its redactions, by kind and stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from cellblock.contract.results import RedactionCount
from cellblock.egress.filtering import FilterReport, Redaction, find, redact
from cellblock.egress.secrets import Finding, find_registered
from cellblock.egress.views import ReadingBudget
from cellblock.egress.withholding import KIND, TOO_LONG, Growth
from cellblock_config.egress import EgressSettings


def size_of(text: str) -> int:
    """The bytes of a text as it leaves."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


class RedactionCounter:
    """Filters texts of one job and counts the redactions."""

    def __init__(self, settings: EgressSettings) -> None:
        self.settings = settings
        self.growth = Growth()
        self._budget = ReadingBudget()
        self._counted: Counter[tuple[str, str]] = Counter()

    def find(self, text: str) -> list[Finding]:
        """The stretches that would be taken out, without counting them."""
        return find(text, self.settings, self._budget)

    def registered(self, text: str) -> list[Finding]:
        """The registered values in the text as it stands, without counting them."""
        return find_registered(text, self.settings.registered)

    def text(self, stream: str, text: str) -> str:
        """The text that may leave, or a notice if it would be too long; its redactions are counted."""
        if not text:
            return text
        report = redact(text, self.find(text))
        short = self.short_enough(stream, text, report)
        return self.too_long(stream) if short is None else short

    def short_enough(self, stream: str, text: str, report: FilterReport) -> str | None:
        """What is left of a text, its redactions counted; None if notices make it longer than it may be."""
        if report.text != text and not self.growth.fits(size_of(text), size_of(report.text)):
            return None
        self.add(stream, report.redactions)
        return report.text

    def too_long(self, stream: str) -> str:
        """The notice in place of a text that would be too long. It is counted."""
        self.add(stream, [Redaction(KIND, 0, 0)])
        return f"[{TOO_LONG}]"

    def add(self, stream: str, redactions: Iterable[Redaction]) -> None:
        """Counts redactions that were made elsewhere."""
        for redaction in redactions:
            self._counted[redaction.kind, stream] += redaction.count

    def withheld(self, stream: str, found: Iterable[Finding]) -> str:
        """Counts the findings for which a part is withheld. Returns the reason as text."""
        found = list(found)
        self.add(stream, [Redaction(one.kind, one.start, one.end, one.how) for one in found])
        kinds = ", ".join(sorted({one.kind for one in found}))
        return f"withheld: it holds something that must not leave ({kinds})"

    def counts(self) -> tuple[RedactionCount, ...]:
        """All counts, by kind and stream."""
        return tuple(
            RedactionCount(kind=kind, stream=stream, count=count)
            for (kind, stream), count in sorted(self._counted.items())
        )
