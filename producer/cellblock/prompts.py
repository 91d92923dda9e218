"""What to tell a model whose program will run as a job."""

from __future__ import annotations

_CONTEXT = """\
A file of {size} is open to the Python program you write, as the global variable `ctx`. It is far larger \
than you can read, and so is what you may print: find the few places that matter and look at those alone.

    ctx.size                                  the file's length in bytes
    ctx.search(pattern, max_results=5)        [(offset, match), ...] of a regular expression, in order
    ctx.snippet(offset, window=500)           the text around an offset
    ctx.read(start, length)                   the text of `length` bytes from `start` on

Rules:
1. Begin with `ctx.search`. Use a narrow pattern; raise `max_results` only when the first matches do not do.
2. Look at a match with `ctx.snippet(offset)`; widen the window rather than read on and on.
3. Never read the whole file, never loop over all of it, and never print more than a few snippets.
4. Offsets are bytes. Text cut in the middle of a character shows U+FFFD there; that is no error.
5. Print your conclusion, or assign it to `result`. Do not print raw context: summarise it.

Example:

    for offset, match in ctx.search(r"(?i)error[^\\n]{{0,80}}", max_results=3):
        print(offset, ctx.snippet(offset, window=300))
"""


def context_prompt(size_bytes: int | None = None) -> str:
    """The system prompt that teaches a model the ``ctx`` of a job with a ``context_path``."""
    return _CONTEXT.format(size=f"{size_bytes:,} bytes" if size_bytes is not None else "many bytes")
