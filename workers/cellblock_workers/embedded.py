"""Jobs without a fleet: the same ledger scripts on an in-process Redis, the same execution.

What a first job waits for longest is started first: launcher and filter get ready while this process imports
the rest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cellblock.errors import InvalidJob
from cellblock.interrupts import interrupts_held
from cellblock_config import LevelName, Settings
from cellblock_workers.filtering.processes import StartedTemplate, Template, start_template
from cellblock_workers.launcher.contexts import ContextRefused, resolve_context
from cellblock_workers.launcher.spawn import StartedLauncher, running_launcher
from cellblock_workers.telemetry import configure_logging

if TYPE_CHECKING:
    from cellblock.contract.job_spec import JobSpec
    from cellblock.contract.results import JobResult
    from cellblock_workers.embedded_host import EmbeddedHost

#: Threads beyond one for each processor: some wait for sandboxes while others work.
_MORE_THREADS = 1


@contextmanager
def embedded_run(
    settings: Settings, level: LevelName, context: Path | None
) -> Iterator[Callable[[JobSpec], JobResult]]:
    """A function that runs one job of this level in this process, with a launcher that ends with the block.

    ``context``: the file that the job is to see. The function raises what :meth:`cellblock.Client.submit`
    raises, and :class:`SandboxUnavailable`.
    """
    roots = _context_roots(settings, context)
    with running_launcher(settings, level, roots, main_of_fork=_launch) as launcher, ExitStack() as started:
        with interrupts_held():
            template = start_template()
            started.callback(template.close)

        def run(spec: JobSpec) -> JobResult:
            host = started.enter_context(_host(settings, launcher, template))
            return host.run(host.prepare(spec))

        yield run


@contextmanager
def embedded_fleet(settings: Settings, level: LevelName) -> Iterator[Callable[[JobSpec], Future[JobResult]]]:
    """A function that starts jobs of this level here; as many run at once as this machine has processors
    for."""
    threads = len(os.sched_getaffinity(0)) + _MORE_THREADS
    roots = settings.launcher.context_roots
    with running_launcher(settings, level, roots) as launcher, _host(settings, launcher) as host:
        pool = ThreadPoolExecutor(threads, thread_name_prefix="embedded")
        try:
            yield lambda spec: pool.submit(host.run, host.prepare(spec))
        finally:
            host.drain()
            pool.shutdown(cancel_futures=True)


@contextmanager
def _host(
    settings: Settings, launcher: StartedLauncher, template: StartedTemplate | None = None
) -> Iterator[EmbeddedHost]:
    configure_logging(settings.telemetry.model_copy(update={"log_level": "error"}))
    filters = Template(settings.egress, template)
    filters.start()
    # fakeredis imports numpy, whose threads would keep the processors from the sandbox that is being started.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with interrupts_held():
        from cellblock_workers.embedded_host import EmbeddedHost
    with closing(EmbeddedHost(settings, launcher.wait(), filters)) as host:
        host.start()
        yield host


def _launch() -> None:
    from cellblock_workers.launcher.server import main

    main()


def _context_roots(settings: Settings, context: Path | None) -> tuple[Path, ...]:
    """The folders in which this run's context may lie. The caller operates this host: the file's folder will
    do.

    Raises :class:`InvalidJob` for a file that cannot be a context.
    """
    roots = settings.launcher.context_roots
    if context is None:
        return roots
    if not roots and "socket" not in settings.launcher.model_fields_set:
        roots = (Path(os.path.realpath(context)).parent,)
    try:
        resolve_context(str(context.absolute()), roots)
    except ContextRefused as refusal:
        raise InvalidJob("context_path", str(refusal)) from None
    return roots
