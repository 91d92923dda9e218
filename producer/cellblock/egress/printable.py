"""Tells which printable characters of a binary file are text, as opposed to printable by chance.

Three of eight random bytes are printable, so random data is full of short runs of them, and among a few
thousand there are some that look like a name with a value. A find needs context that chance does not write:

* Runs of bytes that stand close together form a stretch. It is text with 24 characters or more, or with one
  run of 20, where most of its bytes are printable. In random bytes there are some 25 such stretches for each
  MiB, of 30 characters each; without this rule it is 2,000 runs that can be read together.
* Samples of sounds and pictures are printable for thousands of bytes, but change by small steps. Text has
  many different steps from one character to the next.

Registered values need no context: :func:`fragments` has the other runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from operator import sub

_RUNS = re.compile(rb"[\t\n\r -~]{6,}")
_WIDE_RUNS = re.compile(rb"(?:[\t\n\r -~]\0){6,}|(?:[\t\n\r -~]\0\0\0){6,}")
#: Formats put lengths and types between their strings.
_GAP_BYTES = 16
_STRETCH_CHARS, _RUN_CHARS = 24, 20
#: The share of a stretch's bytes that are printable.
_PRINTABLE_SHARE = 0.6
_WINDOW_CHARS = 64
#: A window of text has at least one step for this many characters that none of the others has.
_CHARS_PER_STEP = 4
#: Samples of one point stand together, as red, green and blue do, or the bytes of one sample.
_CHANNELS = (1, 2, 3, 4)
#: Stands between two stretches: no place continues across it.
_BORDER = "\n\n\n\n"


def stretches(data: bytes) -> str:
    """The text in a file that is not text as a whole, also that in UTF-16 and UTF-32."""
    texts = [_text(data, start, end) for start, end in _close_runs(data)]
    texts += [_text(run, 0, len(run)) for run in _wide_runs(data)]
    return _BORDER.join(text for text in texts if text)


def fragments(data: bytes) -> str:
    """All printable runs, by chance or not: only a value that is known whole is found among them."""
    runs = [*_RUNS.findall(data), *_wide_runs(data)]
    return "\n".join(run.decode() for run in runs)


def _wide_runs(data: bytes) -> Iterator[bytes]:
    """Runs in UTF-16 and UTF-32. Sounds of little volume look like these."""
    for run in _WIDE_RUNS.finditer(data):
        yield run[0].replace(b"\0", b"")


def _close_runs(data: bytes) -> Iterator[tuple[int, int]]:
    start = end = -1
    for run in _RUNS.finditer(data):
        if start < 0 or run.start() - end > _GAP_BYTES:
            if start >= 0:
                yield start, end
            start = run.start()
        end = run.end()
    if start >= 0:
        yield start, end


def _text(data: bytes, start: int, end: int) -> str:
    """The text of a stretch; empty if its characters are printable by chance."""
    if end - start < _RUN_CHARS:
        return ""
    runs = _RUNS.findall(_without_samples(data[start:end]))
    chars = sum(map(len, runs))
    together = chars >= _STRETCH_CHARS and chars >= _PRINTABLE_SHARE * (end - start)
    return "\n".join(run.decode() for run in runs if together or len(run) >= _RUN_CHARS)


def _without_samples(stretch: bytes) -> bytes:
    """The stretch, with zeros for windows that change by small steps and stand among others of that kind."""
    windows = [stretch[at : at + _WINDOW_CHARS] for at in range(0, len(stretch), _WINDOW_CHARS)]
    even = [True, *map(are_samples, windows), True]
    return b"".join(
        bytes(len(window)) if even[at] and even[at + 1] and even[at + 2] else window
        for at, window in enumerate(windows)
    )


def are_samples(window: bytes) -> bool:
    """Whether a few bytes have few different steps: in all, or in one byte of every sample."""
    return any(
        _has_few_steps(window, channels)
        or any(_has_few_steps(window[byte::channels], 1) for byte in range(channels if channels > 1 else 0))
        for channels in _CHANNELS
    )


def _has_few_steps(window: bytes, channels: int) -> bool:
    """Whether few steps differ, from one sample of any channel to the next of that channel."""
    return len(set(map(sub, window[channels:], window))) * _CHARS_PER_STEP < len(window) - channels
