"""System calls made ready before a fork: what they forgive, and what they do not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cellblock_workers.zygote import kernel


def test_a_mount_may_lack_its_target_and_nothing_else(tmp_path: Path) -> None:
    """A file of /proc that some kernels do not have needs no mask; a mask that is not there masks nothing."""
    here, nowhere = tmp_path / "here", tmp_path / "nowhere"
    here.touch()
    kernel.mounting(str(here), str(nowhere), None, kernel.MS_BIND, may_lack=True)()
    with pytest.raises(FileNotFoundError, match=re.escape(f"mount {here}")):
        kernel.mounting(str(nowhere), str(here), None, kernel.MS_BIND, may_lack=True)()
    with pytest.raises(FileNotFoundError, match=re.escape(f"mount {nowhere}")):
        kernel.mounting(str(here), str(nowhere), None, kernel.MS_BIND)()
