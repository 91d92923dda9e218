"""Filters a job's files: text is redacted, any other file leaves whole or not at all."""

from __future__ import annotations

from functools import partial

from cellblock.contract.results import Artifact, SkippedArtifact
from cellblock.egress import files
from cellblock.egress.context import ContextSource
from cellblock.egress.filtering import Redaction, is_echo, redact
from cellblock.egress.redaction_counts import RedactionCounter
from cellblock.egress.withholding import KIND, TOO_LONG, Guard, OutOfBounds, piece, reason

#: The beginning of each file that is compared with the context together with those of all other files.
_SHORT_CHARS = 4096
_STREAM = "artifacts"
#: Stands for a file whose name must not leave either.
_NAMELESS_FILE = SkippedArtifact(
    path="?", reason="withheld: its name could not be looked through, or is too long"
)


class ArtifactFilter:
    """Filters a job's files one after the other, as each can be large; all share one budget for unpacking."""

    def __init__(self, counter: RedactionCounter, context: ContextSource | None, guard: Guard) -> None:
        """``guard`` bounds each name and each file."""
        self._counter = counter
        self._context = context
        self._guard = guard
        self._budget = files.UnpackBudget()
        self._short: list[str] = []
        #: Whether one of the files, or all together, repeat the context.
        self.echo = False

    def filtered(
        self, artifacts: tuple[Artifact, ...]
    ) -> tuple[tuple[Artifact, ...], tuple[SkippedArtifact, ...]]:
        """The files that may leave, and the reasons why the others must not."""
        names = [piece(self._guard, partial(self._name, file.path), lambda why: None) for file in artifacts]
        done = [self._within_bounds(file, name) for file, name in zip(artifacts, names, strict=True)]
        return (
            tuple(file for file in done if isinstance(file, Artifact)),
            tuple(file for file in done if isinstance(file, SkippedArtifact)),
        )

    def skipped(self, skipped: tuple[SkippedArtifact, ...]) -> tuple[SkippedArtifact, ...]:
        """The entries of files that were skipped before, with names and reasons filtered."""
        return tuple(
            piece(self._guard, partial(self._skipped, one), lambda why: _NAMELESS_FILE) for one in skipped
        )

    def compare_together(self) -> None:
        """Compares the beginnings of all files as one text: each can hold a part of a copy."""
        self._compare("\n".join(self._short))

    def _skipped(self, one: SkippedArtifact) -> SkippedArtifact:
        path = self._name(one.path)
        if path is None:
            return _NAMELESS_FILE
        return SkippedArtifact(path=path, reason=self._counter.text(_STREAM, one.reason))

    def _within_bounds(self, file: Artifact, path: str | None) -> Artifact | SkippedArtifact:
        if path is None:
            return _NAMELESS_FILE

        def withheld(why: OutOfBounds) -> SkippedArtifact:
            self._counter.add(_STREAM, [Redaction(KIND, 0, 0)])
            return SkippedArtifact(path=path, reason=reason(why))

        return piece(self._guard, partial(self._filtered, file, path), withheld)

    def _name(self, path: str) -> str | None:
        """A file's name, filtered; control characters stay, and the code that shows the name escapes them.
        None if it would be too long."""
        report = redact(path, self._counter.find(path), controls=False)
        name = self._counter.short_enough(_STREAM, path, report)
        if name is None:
            self._counter.too_long(_STREAM)
        return name

    def _compare(self, text: str) -> None:
        if self._context is not None and not self.echo:
            self.echo = is_echo([text], self._context, self._counter.settings)

    def _filtered(self, file: Artifact, path: str) -> Artifact | SkippedArtifact:
        fragments: list[str] | None = [] if self._counter.settings.registered else None
        texts = files.read(file.data, self._budget, fragments)
        if isinstance(texts, str):
            return SkippedArtifact(path=path, reason=f"withheld: {texts}")
        whole = "\n".join(texts)
        if path != file.path:
            return SkippedArtifact(path=path, reason="withheld: its name holds something that must not leave")
        found = self._counter.find(whole) or self._counter.registered("\n".join(fragments or ()))
        if found and whole != files.as_text(file.data):
            return SkippedArtifact(path=path, reason=self._counter.withheld(_STREAM, found))
        text = self._counter.short_enough(_STREAM, whole, redact(whole, found, controls=False))
        if text is None:
            self._counter.too_long(_STREAM)
            return SkippedArtifact(path=path, reason=TOO_LONG)
        self._compare(text)
        self._short.append(text[:_SHORT_CHARS])
        return Artifact(path=path, data=text.encode()) if found else file
