"""How a program ends: its value, its exception, and the interpreter's exit.

What stands here runs after the program had the interpreter. It uses references of its own, taken before.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import sys
import threading
import traceback
import types
from typing import Callable, NamedTuple

from .output import write_printed
from .pipes import RAISED, VALUE, write_all
from .values import encode_value

#: Used after the job has begun. The job may replace them in their modules, and must not change how it ends.
end_process, await_threads, run_exit_functions = os._exit, threading._shutdown, atexit._run_exitfuncs  # type: ignore[attr-defined]
collect_garbage, own_pid = gc.collect, os.getpid
format_exception, format_exception_only = traceback.format_exception, traceback.format_exception_only
written_raised = json.JSONEncoder(ensure_ascii=False).encode
job_pid = 0  #: the process that runs the program; a forked child is not the job


class ProgramEnd(NamedTuple):
    """How a program came to its end: the exit status so far, the work folder, and how many modules were
    loaded before it."""

    status: int
    folder: str
    modules_before: int


def note_job_process() -> None:
    """Takes this process for the job's: it alone sends a value and an exception."""
    global job_pid
    job_pid = own_pid()


def send_value(value: object, limit_bytes: int) -> None:
    """Sends the value, as far as it can be expressed; not from a forked child, which is not the job."""
    if own_pid() != job_pid:
        return
    try:
        write_all(VALUE, encode_value(value, limit_bytes))
    except OSError:
        return  # the job closed it: its loss


def exit_status(code: object) -> int:
    """The exit status that the interpreter makes of SystemExit's argument."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF if -(2**63) <= code < 2**63 else 0xFF
    sys.stderr.write(str(code) + "\n")
    return 1


def leave(end: ProgramEnd) -> None:
    """Does the interpreter's exit: threads, exit functions, what the program holds, output. The process ends
    here: the rest of a tear-down would copy every page shared with the guest for nothing.

    As in a plain interpreter, exceptions meanwhile are shown and change nothing else; output that cannot be
    written makes the status 120.
    """
    status = end.status
    try:
        attempt(await_threads)
        attempt(run_exit_functions)
        written = flush_output()
        attempt(lambda: let_go(end.folder, end.modules_before))
        write_printed(sys.stdout)  # by finalizers; here an interpreter says nothing of a failure
        if not written:
            status = 120
    finally:
        end_process(status)


def attempt(step: Callable[[], object]) -> None:
    """Does the step; an exception is shown."""
    try:
        step()
    except BaseException as error:
        show_ignored(step, error)


def show_ignored(where: object, error: BaseException) -> None:
    """Shows an exception in the interpreter's words, and without our frames."""
    try:
        if sys.stderr is not None:
            lines = format_exception_only(type(error), error)
            sys.stderr.write(f"Exception ignored in: {where!r}\n{''.join(lines)}")
    except BaseException:
        return  # the program left no stream to show it on


def flush_output() -> bool:
    """Flushes what was printed. Returns whether that worked; a stream that was closed or dropped holds
    nothing."""
    written = True
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
        except BaseException as error:
            written = False
            show_ignored(stream, error)
    return written


def let_go(folder: str, before: int) -> None:
    """Drops the program and the modules of its own folder, as the interpreter does: open files are written,
    and finalizers run, which find every name still there. Only modules after the first ``before`` are looked
    at: a look at one copies the pages that it shares with the guest.
    """
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    collect_garbage()  # puts what holds something before what it holds: a file is written before it is closed
    new = max(0, len(sys.modules) - before)
    latest = [name for _, name in zip(range(new), reversed(sys.modules))]
    names = [name for name in latest if is_in(folder, sys.modules[name])]
    for name in ("__main__", *names):
        sys.modules.pop(name, None)
    collect_garbage()


def is_in(folder: str, module: object) -> bool:
    if not isinstance(module, types.ModuleType):
        return False
    return str(vars(module).get("__file__")).startswith(folder + "/")


def refuse(error: Exception) -> int:
    """Reports that the program cannot begin, as an exception of its own. Returns the exit status."""
    text = f"{type(error).__name__}: {error}\n"
    sys.stderr.write(text)
    send_raised(error, text)
    return 1


def report_raised(error: BaseException, path: str) -> None:
    """Prints the traceback as the interpreter would, from the job's own first frame on, and sends it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != path:
        trace = trace.tb_next
    text = "".join(format_exception(type(error), error, trace))
    if sys.excepthook is sys.__excepthook__:
        attempt(lambda: sys.stderr.write(text))
    else:
        try:
            sys.excepthook(type(error), error, trace)
        except BaseException as failed:
            show_ignored("sys.excepthook", failed)
            attempt(lambda: sys.stderr.write(text))
    send_raised(error, text)


def send_raised(error: BaseException, text: str) -> None:
    try:
        message = str(error)
    except Exception:
        message = "<the exception's __str__ failed>"
    report = {"type": type(error).__name__[:200], "message": message[:2000], "traceback": text[-4000:]}
    try:
        if own_pid() == job_pid:  # a forked child's exception is not the job's
            os.write(RAISED, written_raised(report).encode("utf-8", "replace"))
    except OSError:
        return  # the job closed it: its loss
