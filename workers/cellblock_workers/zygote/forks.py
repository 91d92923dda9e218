"""Forks into new namespaces that touch little: every page that is touched is copied for the sandbox.

Standard library only, Python 3.8+, like the zygote.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from typing import Any, Callable, List

from cellblock_workers.zygote import kernel


class RestingHook:
    """What is to be done after forks, but not after all of them."""

    __slots__ = ("hook", "rests")

    def __init__(self, hook: Callable[[], object]) -> None:
        self.hook = hook
        self.rests = False

    def __call__(self) -> None:
        if not self.rests:
            self.hook()


def import_threading() -> List[RestingHook]:
    """Import it, and say what it has done after forks. Nothing where somebody has imported it before.

    It clears up after the threads that a fork does not have. After one of a process with one thread there are
    none, and some 40 pages would be copied for it (docs/performance.md). The forks that jobs make are none of
    these: the hook stays, and rests only when told to.
    """
    hooks: List[RestingHook] = []
    registry: Any = os  # whose function is another one meanwhile
    register = registry.register_at_fork

    def register_resting(**given: Callable[[], object]) -> None:
        resting = {when: RestingHook(hook) for when, hook in given.items()}
        hooks.extend(resting.values())
        register(**resting)

    if "threading" not in sys.modules:
        registry.register_at_fork = register_resting
        try:
            importlib.import_module("threading")
        finally:
            registry.register_at_fork = register
    return hooks


class Clone:
    """Forks into new namespaces. Only from a process that has, and had, one thread.

    Made ready once: of what is touched between two forks, the one who forks gets a new copy each time.
    """

    __slots__ = ("after_in_child", "after_in_parent", "arguments", "before", "call", "hooks")

    def __init__(self, flags: int, hooks: List[RestingHook]) -> None:
        """``hooks``: of :func:`import_threading`; they rest meanwhile."""
        self.call, self.arguments = kernel.cloning(flags)
        self.hooks = hooks
        python = ctypes.pythonapi
        self.before, self.after_in_parent = python.PyOS_BeforeFork, python.PyOS_AfterFork_Parent
        self.after_in_child = python.PyOS_AfterFork_Child

    def __call__(self) -> int:
        """The child's pid, or 0 in the child. Raises :class:`OSError`."""
        for hook in self.hooks:
            hook.rests = True
        self.before()
        pid: int = self.call(*self.arguments)
        failure = ctypes.get_errno()
        (self.after_in_child if pid == 0 else self.after_in_parent)()
        for hook in self.hooks:
            hook.rests = False
        if pid < 0:
            raise OSError(failure, f"clone: {os.strerror(failure)}")
        return pid
