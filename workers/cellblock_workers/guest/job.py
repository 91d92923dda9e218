"""The job process: drops to the job's uid, waits for its job, and becomes the program."""

from __future__ import annotations

import ast
import json
import linecache  # noqa: F401 - what tracebacks need, imported before the job is there to wait for it
import math
import os
import resource
import signal
import sys
import time
import types
from typing import Any, Callable, Sequence

from .calls import Caller, as_text, failed_line, message_of, read_call, send_reply
from .context import ContextHandle
from .ending import ProgramEnd, exit_status, note_job_process, refuse, report_raised, send_value
from .judging import JudgeProgram, Unheard
from .messages import HEADER, JobMessage, read_job
from .module_guard import guard_imports
from .output import OutputWriter, write_lines_at_once, write_printed
from .own_interpreter import DEPTH_NAMES, TELL_DEPTH, be_main_thread, leave_depth, program_module, told_depth
from .own_modules import put_own_first
from .pipes import CONTROL, DESCRIPTORS_MAX, PIECE_BYTES, RAISED, VALUE, WORK_DIR, Pipes, write_all
from .syscall_filter import PRCTL, forbid_fatal_calls, forbid_limits_of_others
from .testing import PYTEST_MODULES, judge_beside
from .values import decode_input

PR_SET_DUMPABLE = 4
#: Scores for the kernel's choice of victim: jobs before the guest, a running job before those that wait.
WAITING, RUNNING = 900, 1000
#: A single job takes less than this to get ready.
GOT_READY_S = 0.1
#: Longer sources do not get a last expression: to parse them costs memory that the job paid for.
LAST_EXPRESSION_BYTES = 256 * 1024


def become_job(pipes: Pipes, options: dict[str, Any]) -> None:
    """Drops to the job's uid and takes the descriptors, the folder and the limits of a job."""
    if os.getsid(0) != os.getpid():  # the first process of a sandbox already leads its session
        os.setsid()
    drop_to(options["uid"])
    for source, fd in ((pipes.job_control, CONTROL), (pipes.job_raised, RAISED), (pipes.job_value, VALUE)):
        os.dup2(source, fd)
    for fd, source in enumerate((pipes.job_stdin, pipes.job_stdout, pipes.job_stderr)):
        os.dup2(source, fd, inheritable=True)
    os.closerange(3, CONTROL)
    os.closerange(VALUE + 1, DESCRIPTORS_MAX)
    os.umask(0o022)
    folder = options.get("folder", WORK_DIR)
    if not os.access(folder, os.F_OK):
        os.mkdir(folder)
    os.chdir(folder)
    limits = {"CORE": 0, **options["rlimits"]}
    if "NPROC" in limits:
        limits["NPROC"] += 1  # the thread that writes the output counts as a process (output.py)
    for name, value in limits.items():
        which = getattr(resource, f"RLIMIT_{name}")
        resource.setrlimit(which, (value, value))
    if options.get("shares_uid", False):
        forbid_limits_of_others()
    forbid_fatal_calls()


def default_signals() -> None:
    """Sets signals as a new interpreter has them: a launcher under nohup would pass on what it ignores."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) is not signal.SIG_DFL:  # a call for each of 60 costs gVisor 4 ms
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def drop_to(uid: int) -> None:
    """Becomes this uid and no other, and the first victim when memory runs out, before the guest."""
    if os.getuid() != uid:  # a guest that was started without another identity has none to give up
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    # The change of uid made /proc/self root's; this makes it this process's again.
    PRCTL(PR_SET_DUMPABLE, 1, 0, 0, 0)
    be_victim(WAITING)


def be_victim(score: int) -> None:
    """Sets the score by which the kernel chooses this process when memory runs out. A job can undo that; then
    its size decides."""
    file = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    os.write(file, b"%d" % score)
    os.close(file)


class ReceivedJob:
    """The job as it comes down the control pipe: its description, then the bytes of its files and inputs."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def description(self) -> JobMessage:
        """The content of its first frame. If the pipe closes instead, there is no job, and this process
        exits."""
        first = os.read(self.fd, 1)
        if not first:
            os._exit(0)
        _, length = HEADER.unpack(first + self.take(HEADER.size - 1))
        return read_job(self.take(length))

    def take(self, length: int) -> bytes:
        """The next ``length`` bytes, complete."""
        pieces: list[bytes] = []
        self.pass_on(length, pieces.append)
        return b"".join(pieces)

    def pass_on(self, length: int, to: Callable[[bytes], object]) -> None:
        """Hands over the next bytes as they come."""
        while length:
            piece = os.read(self.fd, min(length, PIECE_BYTES))
            if not piece:
                os._exit(0)  # the guest is gone, and no one waits for the job
            to(piece)
            length -= len(piece)


def run_job() -> ProgramEnd:
    """Receives the job, runs the program as __main__, sends its value."""
    note_job_process()
    delivery = ReceivedJob(CONTROL)
    job = delivery.description()
    be_victim(RUNNING)
    used_s = time.process_time()
    # The kernel counts from the fork. Jobs of a series get ready at once, and gVisor counts each while the
    # others run: such a job gets that time beside its own, in whole seconds.
    cpu_s = max(1, math.ceil(job.cpu_s + (used_s if used_s > GOT_READY_S else 0)))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    folder = os.getcwd()
    add_to_environment(job.env)
    try:
        write_files(job.files, delivery, folder)
        given_as = [(name, kind, delivery.take(size)) for name, kind, size in job.inputs]
        if job.role == "judge":
            be_judge()
        if job.role == "program":
            os.close(CONTROL)
        given = {name: decode_input(name, kind, data) for name, kind, data in given_as}
        if job.context_bytes is not None:
            given["ctx"] = ContextHandle(at_least=job.context_bytes)
        path, source = main_program(job, folder)
    except Exception as error:
        return ProgramEnd(refuse(error), folder, len(sys.modules))
    sys.argv = [path, *job.args]
    sys.path.insert(0, os.path.dirname(path))
    sys.dont_write_bytecode = True  # no one imports it again, and the work folder is the job's to fill
    # A program that is called from outside is a module: code under "if __name__ == '__main__'" does not run.
    own = "solution" if job.code is not None else os.path.basename(path)[: -len(".py")]
    main = program_module("__main__" if job.role == "program" else own, path, given)
    be_main_thread()
    put_own_first(sys.path[0])
    before = len(sys.modules)
    sys.modules[main.__name__] = sys.modules["__main__"] = main
    if job.modules is not None:
        more = (*PYTEST_MODULES, own) if job.role == "tested" else ()
        guard_imports(job.level, [*job.modules, *more], folder)
    return ProgramEnd(run_main(job, source, path, main.__dict__), folder, before)


def run_main(job: JobMessage, source: bytes, path: str, names: dict[str, Any]) -> int:
    """Runs the program in these names. Returns its exit status."""
    OutputWriter(sys.stdout, job.timeout_s)
    try:
        if job.role == "program":
            send_value(run_program(source, path, names), job.value_bytes)
        else:
            answer(role=job.role, source=source, path=path, names=names, texts=job.texts)
    except SystemExit as error:
        status = exit_status(error.code)
        if status == 0:  # a program that exits with 0 has a result as well
            send_value(names.get("result"), job.value_bytes)
        return status
    except BaseException as error:
        report_raised(error, path)
        return 1
    return 0


def answer(role: str, source: bytes, path: str, names: dict[str, Any], texts: Sequence[str]) -> None:
    """Runs a program that answers calls, or one with its tests."""
    if role == "candidate":
        exec(compile(source, path, "exec", dont_inherit=True), names)
        Caller(names, CONTROL, VALUE).serve()
    elif role == "inline":
        setup, tests = texts
        exec(compile(setup, "setup.py", "exec", dont_inherit=True), names)
        judge_inline(source=source, path=path, names=names, tests=lambda: run_tests(tests, names), text=tests)
    else:
        judge_inline(source, path, names, lambda: judge_beside(os.path.dirname(path), texts))


def run_tests(tests: str, names: dict[str, Any]) -> None:
    exec(compile(tests, "tests.py", "exec", dont_inherit=True), names)


def judge_inline(
    source: bytes,
    path: str,
    names: dict[str, Any],
    tests: Callable[[], tuple[str, str] | None],
    text: str = "",
) -> None:
    """Runs program and tests in one interpreter, and sends the verdict.

    The nonce that makes it a verdict waits in a pipe until then: nothing in this process's memory has it. A
    program that knows where to read can still forge a verdict: "inline" accepts that.
    """
    exec(compile(source, path, "exec", dont_inherit=True), names)
    try:
        wrong = tests()
    except Exception as error:
        wrong = (type(error).__name__, message_of(error) or failed_line(error, text))
    write_printed(sys.__stdout__)  # the verdict may end the job
    nonce = read_call(CONTROL)
    if nonce is not None:
        said = ("passed", "", "") if wrong is None else ("failed", *wrong)
        send_reply(VALUE, as_text([json.loads(nonce), *said]))


def be_judge() -> None:
    """Judges until the worker closes the pipe. Never returns."""
    sys.stdout = sys.stderr = Unheard()
    JudgeProgram(CONTROL, VALUE).serve()


def warm_up(folder: str) -> None:
    """Does ahead of the job what is the same for all jobs, and what an interpreter is slow at the first time.
    ``folder``: where the jobs will work."""
    default_signals()
    write_lines_at_once()
    set_environment(folder)
    exec(compiled(b"0\n", "main.py")[0], {})
    json.loads(json.dumps({"code": "", "args": [], "timeout_s": 1.0}))


def set_environment(folder: str) -> None:
    os.environ.clear()
    os.environ.update(
        PATH="/usr/local/bin:/usr/bin:/bin",
        HOME=folder,
        TMPDIR=folder,
        USER="job",
        LOGNAME="job",
        LANG="C.UTF-8",
        PYTHONUTF8="1",
    )
    time.tzset()


def add_to_environment(given: dict[str, str]) -> None:
    """Sets the job's variables. The interpreter has begun already: it is told of those that it reads then and
    that a job may set by default; docs/inputs.md names the others."""
    if given:
        os.environ.update(given)
        time.tzset()


def write_files(files: Sequence[tuple[str, int]], delivery: ReceivedJob, folder: str) -> None:
    """Writes the job's files into its folder."""
    for name, size in files:
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            delivery.pass_on(size, file.write)


def main_program(job: JobMessage, folder: str) -> tuple[str, bytes]:
    """Path and source of what runs as __main__: the code, or one of the files."""
    if job.code is None:
        path = os.path.join(folder, job.entrypoint or "")
        with open(path, "rb") as file:
            return path, file.read()
    path, source = os.path.join(folder, "main.py"), job.code.encode()
    main = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    write_all(main, source)
    os.close(main)
    return path, source


def run_program(source: bytes, path: str, names: dict[str, Any]) -> object:
    """Runs it and returns its value: ``result`` if the program sets it, else its last expression's."""
    body, last = compiled(source, path)
    try:
        exec(TELL_DEPTH, dict(DEPTH_NAMES))
    except RecursionError as error:
        leave_depth(told_depth(error))
    exec(body, names)
    value = eval(last, names) if last is not None else None
    return names.get("result", value)


def compiled(source: bytes, path: str) -> tuple[types.CodeType, types.CodeType | None]:
    """The program, and apart from it its last expression if it ends in one. Raises SyntaxError for either."""
    if len(source) > LAST_EXPRESSION_BYTES:
        return compile(source, path, "exec", dont_inherit=True), None
    tree = ast.parse(source, path)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = compile(ast.Expression(tree.body.pop().value), path, "eval", dont_inherit=True)  # type: ignore[attr-defined]
    return compile(tree, path, "exec", dont_inherit=True), last
