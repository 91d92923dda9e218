"""What a name of a tenant, a plan, a role or a key may be, and the words of the error for one that is not."""

from collections.abc import Mapping
from typing import Any

#: No slash and no space: the ledger joins names with them.
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.:@-]{0,127}$"
#: What ``NAME`` allows, in the words of an error: "… is not a name: …".
NAME_RULE = "letters, digits and _ . : @ - only, a letter or digit first, 128 at most"
JOB_ID = r"^[0-9a-f]{32}$"
_IN_WORDS = {NAME: f"is not a name: {NAME_RULE}", JOB_ID: "is not a job's id: 32 hexadecimal digits"}


def problem_of(error: Mapping[str, Any]) -> str:
    """What one of pydantic's errors complains of, without the value: in our words where we have some."""
    pattern = str(error.get("ctx", {}).get("pattern"))
    for known, words in _IN_WORDS.items():
        if known in pattern:
            return words
    return str(error["msg"]).removeprefix("Value error, ")
