"""Imports made before a job is there to wait for them: by a guest for its job, by a zygote for all."""

from __future__ import annotations

import importlib
import os

#: Keeps numerical libraries to one thread: more cannot be forked, and a job has its share of CPU anyway.
ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}


def import_ahead(names: list[str]) -> None:
    """Imports these modules. Raises what an import raises, and RuntimeError if one has started a thread."""
    if not names:
        return
    os.environ.update(ONE_THREAD)
    for name in names:
        importlib.import_module(name)
    threads = []
    for one in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{one}/comm") as file:
            threads.append(file.read().strip())
    if len(threads) != 1:
        raise RuntimeError(
            f"importing {', '.join(names)} started threads ({', '.join(threads)}), and a fork has only one; "
            "take what does it out of sandbox.preload"
        )
