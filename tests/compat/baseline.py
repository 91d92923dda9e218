"""What came of each case bare, kept for the image and the runner that it was measured with."""

from __future__ import annotations

import fcntl
import hashlib
import json
from dataclasses import asdict

from cellblock_config import load_settings
from compat.inside import IMAGE
from compat.targets import HERE, Found, Target, run_target_bare
from parts import REPOSITORY

FOLDER = REPOSITORY / "build" / "compat" / "bare"


def bare_of(target: Target) -> Found:
    """Run it once for all ways, whichever process asks first."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    file = FOLDER / f"{target.suite}-{target.name}-{_basis(target)}.json"
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            file.write_text(json.dumps(asdict(run_target_bare(target))))
    kept = json.loads(file.read_text())
    return Found({case: (status, why) for case, (status, why) in kept["cases"].items()}, kept["problems"])


def _basis(target: Target) -> str:
    image = (load_settings().launcher.image_roots / IMAGE / "rootfs").resolve().name
    parts = [
        image.encode(),
        target.request(),
        *((HERE / name).read_bytes() for name in ("casewise.py", "bare.py")),
    ]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
