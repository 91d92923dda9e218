"""Finds its way in a file it never reads whole: docs/inputs.md runs this with --context."""

from typing import Any

ctx: Any  # given with --context

for offset, match in ctx.search(r"(?m)^## .*", max_results=3):
    print(f"{offset:>6} of {ctx.size}  {match}")
