"""Imports made before a job is there to wait for them: by a guest for its job, by a zygote for all."""

from __future__ import annotations

import importlib
import os
import sys

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


def reseed() -> None:
    """Gives a fork random numbers that no other fork draws. `random` does that itself after a fork."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    # OpenSSL notices a fork by its process id, and the first of every PID namespace is 1, like its parent.
    openssl = sys.modules.get("_ssl")
    if openssl is not None:
        openssl.RAND_add(os.urandom(32), 32.0)
