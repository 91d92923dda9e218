"""A fixed part of what `make compat` runs whole: the tests of CPython and of the wheels, inside as bare."""

from __future__ import annotations

import pytest

from compat.baseline import bare_of
from compat.conftest import HostOf
from compat.expected import run_and_compare
from compat.targets import Target, targets
from suite.ways import WAYS


@pytest.mark.long("needs an image that nothing else needs, and takes a minute on each way")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("target", [one for one in targets() if one.quick], ids=lambda target: target.name)
@pytest.mark.parametrize("way", WAYS)
def test_what_passes_bare_passes_inside_or_is_listed(
    target: Target, way: str, compat_host_of: HostOf
) -> None:
    compared = run_and_compare(compat_host_of(way), target, way, bare_of(target))
    assert not compared.problems
