"""HTML pages that are one file, load nothing and run nothing, whatever programs wrote into them.

Three independent protections: every text is escaped, a Content-Security-Policy in the page allows only its
own style, and characters that change what the reader sees are shown as escapes. (No policy stops a page from
sending its reader elsewhere: only the escaping does.)
"""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import Any

from cellblock.egress.controls import clean
from cellblock.errors import InvalidJob, NotConfigured
from cellblock.evaluation.report_data import shortened

#: Marks of direction, which stay in output: beside other words of a page they move those.
_DIRECTION = re.compile("[\u061c\u200e\u200f]")
#: The most characters of a name, or of a value that is not output.
_NAME_CHARS = 120


def save(path: Path, template: str, **values: Any) -> None:
    """Writes a page with these values. The same values give the same bytes.

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
    """A share of 1 as a percentage."""
    return f"{share:.1%}"


def points(share: float) -> str:
    """A difference of two shares, in percentage points."""
    return f"{100 * share:+.1f}".replace("-", "−")  # noqa: RUF001 - this minus is as wide as the plus


def number(count: int) -> str:
    """A count with its thousands separated."""
    return f"{count:,}"


def name(text: object) -> str:
    """A name as text, cut to a bounded length."""
    return shortened(str(text), _NAME_CHARS)


def ms(value: float) -> str:
    """Milliseconds as text, with a fitting unit."""
    return f"{value:.3g} ms" if value < 999.5 else f"{value / 1000:,.2f} s"


def size(value: float) -> str:
    """Bytes as text, with a fitting unit."""
    for unit in ("B", "KiB", "MiB"):
        if value < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:,.2f} GiB"


def _shown(value: Any) -> Any:
    """Makes a value safe to show. Every text of every page passes here, except the templates' own."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return _DIRECTION.sub(lambda mark: f"\\u{ord(mark[0]):04x}", clean(value)[0])
