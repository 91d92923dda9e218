"""The strict profile as an OCI runtime takes it: the same rules, one architecture, nothing dropped."""

from __future__ import annotations

import pytest

from cellblock_workers.launcher.backend import NotOnThisHost, StartFailed
from cellblock_workers.launcher.seccomp import oci_filter, strict_profile


def test_every_rule_is_kept_and_only_comments_go() -> None:
    profile = strict_profile("runc")
    filtered = oci_filter(profile, "x86_64")
    assert filtered["defaultAction"] == "SCMP_ACT_ERRNO"
    assert filtered["architectures"] == ["SCMP_ARCH_X86_64"]
    assert oci_filter(profile, "aarch64")["architectures"] == ["SCMP_ARCH_AARCH64"]
    kept = [{key: value for key, value in rule.items() if key != "comment"} for rule in profile["syscalls"]]
    assert filtered["syscalls"] == kept


def test_only_gvisor_is_left_to_answer_clone3_itself() -> None:
    def rule(isolation: str) -> dict[str, object]:
        profile = strict_profile("gvisor" if isolation == "gvisor" else "runc")
        return next(one for one in profile["syscalls"] if one["names"] == ["clone3"])

    assert (rule("runc")["action"], rule("runc")["errnoRet"]) == ("SCMP_ACT_ERRNO", 38)
    assert rule("gvisor")["action"] == "SCMP_ACT_ALLOW"


@pytest.mark.parametrize("condition", ["includes", "excludes"])
def test_a_condition_docker_would_resolve_is_refused(condition: str) -> None:
    profile = strict_profile("runc")
    profile["syscalls"][0][condition] = {"caps": ["CAP_SYS_ADMIN"]}
    with pytest.raises(StartFailed, match=rf"access has \['{condition}'\], unknown here"):
        oci_filter(profile)


def test_a_machine_the_profile_does_not_know_has_no_filter() -> None:
    with pytest.raises(NotOnThisHost, match="not riscv64"):
        oci_filter(strict_profile("runc"), "riscv64")
