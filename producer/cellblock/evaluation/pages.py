"""HTML pages that are one file, load nothing and run nothing, whatever programs wrote into them.

Three things keep it so, each by itself: every text is escaped, a Content-Security-Policy in the page allows
only its own style, and characters that act on the reader's eye are shown as escapes. (No policy keeps a page
from sending its reader elsewhere: that is for the escaping alone.)
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from cellblock.egress.controls import clean
from cellblock.errors import InvalidJob, NotConfigured
from cellblock.evaluation.report_data import shortened

#: Of a name or a value that is no output.
_NAME_CHARS = 120


def save(path: Path, template: str, **values: Any) -> None:
    """Write a page of these values. The same values make the same bytes.

    Raises :class:`NotConfigured` without jinja2, :class:`InvalidJob` where the file cannot be written.
    """
    try:
        import jinja2
    except ModuleNotFoundError:
        raise NotConfigured(f"{path.name} needs jinja2: pip install 'cellblock[eval]'") from None
    folder = resources.files(__package__)
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda one: folder.joinpath(one).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(percent=percent, points=points, ms=ms, size=size, number=number, name=name)
    page = environment.get_template(template).render(values)
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InvalidJob(str(path), f"cannot be written: {error.strerror}; name another file") from None


def percent(share: float) -> str:
    """A share of 1."""
    return f"{share:.1%}"


def points(share: float) -> str:
    """A difference of two shares, in percentage points."""
    return f"{100 * share:+.1f}".replace("-", "−")  # noqa: RUF001 - a minus as wide as the plus


def number(count: int) -> str:
    """A count, by thousands."""
    return f"{count:,}"


def name(text: object) -> str:
    """A name, however long somebody made it."""
    return shortened(str(text), _NAME_CHARS)


def ms(value: float) -> str:
    """Milliseconds as people say them."""
    return f"{value:.3g} ms" if value < 999.5 else f"{value / 1000:,.2f} s"


def size(value: float) -> str:
    """Bytes as people say them."""
    for unit in ("B", "KiB", "MiB"):
        if value < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:,.2f} GiB"


def _shown(value: Any) -> Any:
    """Every text of every page passes here, but for what the templates made themselves."""
    return clean(value)[0] if isinstance(value, str) and not hasattr(value, "__html__") else value
