"""Forks into new namespaces that touch few pages: every page that is touched is copied for the sandbox.

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
    """A hook for after forks that can be switched off for some of them."""

    __slots__ = ("hook", "rests")

    def __init__(self, hook: Callable[[], object]) -> None:
        self.hook = hook
        self.rests = False

    def __call__(self) -> None:
        if not self.rests:
            self.hook()


def import_threading() -> List[RestingHook]:
    """Imports threading, and returns its hooks for after forks. Empty if it was imported before.

    The hooks clear up after threads that a fork does not have. After a fork of a process with one thread
    there are none, and the hooks would copy some 40 pages (docs/adr/0023). Forks that jobs make still
    need them: so the hooks stay, and rest only when told to.
    """
    hooks: List[RestingHook] = []
    registry: Any = os  # its function is replaced meanwhile
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
    """Forks into new namespaces. Use it only from a process that has one thread, and never had more.

    It is made ready once: the forking process copies anew each page that it touches between two forks.
    """

    __slots__ = ("after_in_child", "after_in_parent", "arguments", "before", "call", "hooks")

    def __init__(self, flags: int, hooks: List[RestingHook]) -> None:
        """``hooks``: of :func:`import_threading`; they rest during the fork."""
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
