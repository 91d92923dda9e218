"""Flower's memory, filled with jobs: a task there is a job here, and events of the ledger move it.

A task of Celery is no more than a message that wakes a worker: it says nothing about which job ran or how it
ended, so none is shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from celery import states
from celery.events.state import TASK_EVENT_TO_STATE, Task
from flower.events import EventsState

from cellblock import Event
from cellblock.contract.events import GAP
from cellblock.queue import RUN_TASK

#: What each event of a job is to Celery, in order: a worker begins with a task when it receives it.
_TASK_EVENTS = {
    "agent.run.queued": ("sent",),
    "agent.run.started": ("received", "started"),
    "agent.run.retried": ("retried",),
    "agent.run.succeeded": ("succeeded",),
    "agent.run.failed": ("failed",),
    "agent.run.cancelled": ("revoked",),
    "agent.run.rejected": ("rejected",),
}
_RUNS = "started"
_FAILURES = frozenset({"failed", "rejected", "retried"})
#: What a worker's process of this name is called by Celery.
_WORKER = "cellblock@{}"


class JobTask(Task):  # type: ignore[misc]
    """A job as a task. The ledger tells its changes in order, so each one replaces what was known."""

    def event(self, type_: str, timestamp: float, fields: dict[str, Any]) -> None:
        """Takes one event over: its time, and the state that it leads to."""
        setattr(self, type_, timestamp)
        self.__dict__.update(fields, state=TASK_EVENT_TO_STATE[type_], timestamp=timestamp)


class JobsState(EventsState):  # type: ignore[misc]
    """Jobs from the ledger, workers from their own heartbeats. Used by the thread of Flower's loop only."""

    Task = JobTask

    def __init__(self, **limits: int) -> None:
        super().__init__(**limits)
        self.handlers["task"] = self._task_event
        self._running: defaultdict[str, set[str]] = defaultdict(set)  # by worker, the ids of its jobs

    def event(self, event: dict[str, Any]) -> None:
        """Takes a worker's event from the broker. Those about tasks are dropped: they are about messages."""
        if not event["type"].startswith("worker-"):
            return
        if "active" in event:  # Celery counts messages
            event = {**event, "active": len(self._running.get(event["hostname"], ()))}
        super().event(event)

    def take(self, events: Iterable[Event]) -> None:
        """Takes events of the ledger over, in their order."""
        for event in events:
            if event.type == GAP:
                self._forget_unfinished()
                continue
            for subject in _TASK_EVENTS[event.type]:
                super().event(
                    {
                        "type": f"task-{subject}",
                        "hostname": _worker_of(event),
                        "uuid": event.job_id,
                        "job_event": event,
                    }
                )

    def _task_event(self, subject: str, event: dict[str, Any]) -> None:
        """Replaces Celery's handler, which would make a worker of every host name."""
        job_event: Event = event["job_event"]
        task, _ = self.get_or_create_task(job_event.job_id)
        ran_s = job_event.at - task.started if task.state == states.STARTED else None
        task.event(subject, job_event.at, _fields(job_event, subject, ran_s))
        self._note_worker(task, subject, event["hostname"])
        self._seen_types.add(RUN_TASK)

    def _note_worker(self, task: JobTask, subject: str, hostname: str) -> None:
        if not hostname:
            return
        worker = self.workers.data.get(hostname)
        task.worker = worker if worker is not None else self.Worker(hostname)
        running = self._running[hostname]
        if subject == _RUNS:
            running.add(task.uuid)
        else:
            running.discard(task.uuid)
        task.worker.active = len(running)
        if not running:
            del self._running[hostname]

    def _forget_unfinished(self) -> None:
        """Forgets the jobs that had not ended before a gap: nobody knows where they are now."""
        for job_id, task in list(self.tasks.items()):
            if task.state not in _ENDED:
                del self.tasks[job_id]
                self.search_engine.remove(job_id)
        self._running.clear()


_ENDED = states.READY_STATES | {states.REJECTED}


def _worker_of(event: Event) -> str:
    return "" if event.worker is None else _WORKER.format(event.worker)


def _fields(event: Event, subject: str, ran_s: float | None) -> dict[str, Any]:
    """What Flower shows of the job now, beside its state and times."""
    arguments = {"tenant": event.tenant, "plan": event.plan, "image": event.image, "trace_id": event.trace_id}
    reason = ": ".join(part for part in (event.outcome, event.message) if part)
    return {
        "name": RUN_TASK,
        "args": "()",
        "kwargs": repr({name: value for name, value in arguments.items() if value is not None}),
        "retries": max(0, event.attempt - 1),
        "exception": reason if subject in _FAILURES else None,
        "result": event.outcome,  # Flower's search looks at it, and not at exceptions
        "runtime": ran_s if subject != _RUNS else None,
        "clock": 0,
    }
