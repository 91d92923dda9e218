"""``docs/settings.md``, made from the settings themselves.

``PYTHONPATH=tests python -m suite.settings_page`` writes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from cellblock_config import Settings

PAGE = Path(__file__).resolve().parents[2] / "docs/settings.md"
_HEAD = """# Settings

Made from `config/cellblock_config` by `PYTHONPATH=tests python -m suite.settings_page`; a test compares.

A setting is an environment variable `CELLBLOCK_<GROUP>_<NAME>`, or a line of a `.env` file in the working
directory; the environment wins. Lists and tables are JSON. A setting that does not exist, or that contradicts
another, is refused at the start, with its name and the remedy. Plans and prices are files: see
`config/cellblock_config/plans.toml` and `pricing.json` beside it.
"""


def page() -> str:
    """The whole page."""
    return _HEAD + "".join(_group(name, field) for name, field in Settings.model_fields.items())


def _group(name: str, field: FieldInfo) -> str:
    model = field.annotation
    assert isinstance(model, type)
    assert issubclass(model, BaseModel)
    rows = "\n".join(_rows(name, model))
    about = " ".join(re.sub(r"``(.+?)``", r"`\1`", model.__doc__ or "").split())
    return f"\n## {name}\n\n{about}\n\n| variable | default | meaning |\n|---|---|---|\n{rows}\n"


def _rows(group: str, model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        meaning = (field.description or "").replace("|", "\\|")
        yield f"| `CELLBLOCK_{group}_{name}`".upper() + f" | {_default(field)} | {meaning} |"


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return "of this host"
    default: Any = field.default
    if default is None or default is PydanticUndefined or isinstance(default, SecretStr):
        return "none"
    if isinstance(default, bool | int | float | str | Enum):
        text = str(default).lower() if isinstance(default, bool) else f"{default}"
    else:
        text = json.dumps(to_jsonable_python(default))
    if len(text) > 60:
        text = f"{text[:57]}…"
    values = get_args(field.annotation)
    shown = f"`{text}`" if text else "empty"
    if values and all(isinstance(value, str) for value in values):
        return f"{shown} of {', '.join(f'`{value}`' for value in values)}"
    return shown


if __name__ == "__main__":
    PAGE.write_text(page())
