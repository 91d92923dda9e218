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
from flower.utils.search import SearchPage, TaskSearchEngine

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
_FAILURES = frozenset({"FAILURE", "REJECTED", "RETRY"})
_ENDED = states.READY_STATES | {states.REJECTED}


class JobTask(Task):  # type: ignore[misc]
    """A job as a task. The ledger tells its changes in order, so each one replaces what was known."""

    name = RUN_TASK
    args = "()"
    state: str = states.PENDING

    def take(self, event: Event) -> None:
        """Takes over what one event says: times, state, and what Flower shows beside them."""
        ran_s = event.at - self.started if self.state == states.STARTED else None
        for subject in _TASK_EVENTS[event.type]:
            setattr(self, subject, event.at)
            self.state = TASK_EVENT_TO_STATE[subject]
        arguments = {"tenant": event.tenant, "plan": event.plan, "image": event.image}
        self.kwargs = repr({name: text for name, text in arguments.items() if text is not None})
        self.timestamp, self.runtime = event.at, ran_s
        self.retries = max(0, event.attempt - 1)
        self.result = event.outcome  # Flower's search looks at it, and not at exceptions
        reason = ": ".join(text for text in (event.outcome, event.message) if text)
        self.exception = reason if self.state in _FAILURES else None


class LateSearch(TaskSearchEngine):  # type: ignore[misc]
    """Flower's search, which reads jobs when somebody searches, not at each of their events."""

    def __init__(self) -> None:
        super().__init__()
        self._unread: dict[str, JobTask] = {}

    def upsert(self, task: JobTask) -> None:
        """Notes that this job has changed."""
        self._unread[task.uuid] = task

    def remove(self, task_id: str) -> None:
        """Forgets a job."""
        self._unread.pop(task_id, None)
        super().remove(task_id)

    def search(self, *tasks: Any, **query: Any) -> SearchPage:
        """Reads the jobs that have changed, and searches all."""
        for task in list(self._unread.values()):
            super().upsert(task)
        return super().search(*tasks, **query)


class JobsState(EventsState):  # type: ignore[misc]
    """Jobs from the ledger, workers from their own heartbeats. Used by the thread of Flower's loop only."""

    Task = JobTask

    def __init__(self, **limits: int) -> None:
        super().__init__(**limits)
        self.search_engine = LateSearch()
        self._seen_types.add(RUN_TASK)
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
            else:
                self._take_one(event)

    def _take_one(self, event: Event) -> None:
        evicted = self._eviction_candidate(event.job_id)
        task, _ = self.get_or_create_task(event.job_id)
        task.take(event)
        if event.worker is not None:
            self._note_worker(task, f"cellblock@{event.worker}", _TASK_EVENTS[event.type])
        self._index_task(task, evicted)

    def _note_worker(self, task: JobTask, hostname: str, subjects: tuple[str, ...]) -> None:
        """Counts the event for its worker. Who sends no heartbeats is named, and not among the workers."""
        for subject in subjects:
            self.counter[hostname][f"task-{subject}"] += 1
        running = self._running[hostname]
        if task.state == states.STARTED:
            running.add(task.uuid)
        else:
            running.discard(task.uuid)
        known = self.workers.data.get(hostname)
        task.worker = known if known is not None else self.Worker(hostname)
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
