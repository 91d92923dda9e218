#!/usr/bin/env python3
"""Promises: strict.json is what groups.toml says, and groups.toml accounts for every call in traced.txt.

`build.py` writes the profile; `build.py --check` writes nothing and ends with 1 when it is out of date.
Either ends with 1, naming the call, when a traced call has no group, an untraced one no reason, or a
refused one is allowed.
"""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ARCHITECTURES = ("SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64")
Table = dict[str, Any]


def compare(test: Table) -> Table:
    """One test of one argument, in Docker's words."""
    if "mask" in test:
        return {
            "index": test["index"],
            "value": test["mask"],
            "valueTwo": test["equals"],
            "op": "SCMP_CMP_MASKED_EQ",
        }
    return {"index": test["index"], "value": test["equals"], "valueTwo": 0, "op": "SCMP_CMP_EQ"}


def alternatives(rule: Table) -> list[list[Table]]:
    """The rule's alternatives; `each`, `pairs` and `bits` are short for several tests."""
    if "each" in rule:
        each = rule["each"]
        return [[{"index": each["index"], "equals": value}] for value in each["equals"]]
    if "pairs" in rule:
        first, second = rule["pairs"]["index"]
        return [
            [{"index": first, "equals": one}, {"index": second, "equals": other}]
            for one, others in rule["pairs"]["equals"]
            for other in others
        ]
    if "bits" in rule:
        refused = 0xFFFFFFFF & ~sum(rule["bits"]["allowed"])
        return [[{"index": rule["bits"]["index"], "mask": refused, "equals": 0}]]
    return list(rule["any"])


def ruled(rule: Table, action: Table) -> list[Table]:
    """What is done with the rule's calls, for each of its alternatives."""
    comment = f"{', '.join(rule['calls'])}: {rule['why']}"
    return [
        {
            "names": sorted(rule["calls"]),
            **action,
            "args": [compare(test) for test in tests],
            "comment": comment,
        }
        for tests in alternatives(rule)
    ]


def profile(groups: Table) -> Table:
    """The whole profile: an allow-list, EPERM for the rest, another errno where a refusal asks for it, and
    errno 0, which is success, for what is ignored."""
    syscalls: list[Table] = []
    for group in groups["group"]:
        names = sorted(group["calls"] + group.get("extra", []))
        syscalls.append(
            {
                "names": names,
                "action": "SCMP_ACT_ALLOW",
                "args": [],
                "comment": f"{group['name']}: {group['why']}",
            }
        )
    for rule in groups["rule"]:
        syscalls += ruled(rule, action={"action": "SCMP_ACT_ALLOW"})
    for rule in groups["ignored"]:
        syscalls += ruled(rule, action={"action": "SCMP_ACT_ERRNO", "errnoRet": 0})
    for refused in groups["refused"]:
        if "errno" in refused:
            entry = {
                "names": sorted(refused["calls"]),
                "action": "SCMP_ACT_ERRNO",
                "errnoRet": refused["errno"],
                "args": [],
            }
            syscalls.append(entry | {"comment": refused["why"]})
    arch_map = [{"architecture": name, "subArchitectures": []} for name in ARCHITECTURES]
    return {"defaultAction": "SCMP_ACT_ERRNO", "archMap": arch_map, "syscalls": syscalls}


def faults(groups: Table, traced: set[str]) -> list[str]:
    """Every way in which groups.toml contradicts the trace or itself."""
    calls = [name for group in groups["group"] for name in group["calls"]]
    extra = [name for group in groups["group"] for name in group.get("extra", [])]
    ruled = [name for rule in groups["rule"] for name in rule["calls"]]
    refused = [name for entry in groups["refused"] for name in entry["calls"]]
    allowed = calls + extra + ruled
    found = [f"{name}: traced, but in no group" for name in sorted(traced - set(allowed) - set(refused))]
    found += [
        f"{name}: listed as traced, but not in traced.txt; move it to extra"
        for name in sorted(set(calls) - traced)
    ]
    found += [f"{name}: refused and allowed" for name in sorted(set(refused) & set(allowed))]
    found += [
        f"{name}: allowed twice" for name in sorted({name for name in allowed if allowed.count(name) > 1})
    ]
    found += [
        f"group {group['name']}: extra without extra_why"
        for group in groups["group"]
        if "extra" in group and not group.get("extra_why")
    ]
    return found


def main() -> int:
    """Build or check; the exit code."""
    groups = tomllib.loads((HERE / "groups.toml").read_text(encoding="utf-8"))
    traced = set((HERE / "traced.txt").read_text(encoding="utf-8").split())
    found = faults(groups, traced)
    target = HERE / "strict.json"
    text = json.dumps(profile(groups), indent=2) + "\n"
    check = "--check" in sys.argv[1:]
    if check and (not target.exists() or target.read_text(encoding="utf-8") != text):
        found.append("strict.json: out of date, run seccomp/build.py")
    for fault in found:
        sys.stderr.write(f"seccomp: {fault}\n")
    if found:
        return 1
    if not check:
        target.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
