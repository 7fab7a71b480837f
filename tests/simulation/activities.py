"""Activities on workers: at least once, sometimes twice at once, and failed with a worker that dies.

A worker takes so many at once; the others wait in one queue, in the order in which they were scheduled.
"""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from durabletask.internal import helpers

from durable_retry.base.names import ATTEMPT
from durable_retry.hub.task_hub import TaskHub
from tests.simulation.messages import Asker, Instance, Messages
from tests.simulation.world import Execution, Worker
from tests.support.history import CallActivity, Completed, Event, Failed

type Activity = Callable[[dict[str, Any], TaskHub], Awaitable[Any]]
"""An activity of the app: its input, and the durable client's binding."""


@dataclass(eq=False)
class Doing:
    """An activity that was scheduled with JSON; `done` once it has been answered."""

    asker: Asker
    task_id: int
    name: str
    given: str
    done: bool = False


@dataclass(kw_only=True)
class Activities(Messages):
    """Runs activities.

    Attributes:
        activities: By name.
        places: How many each worker executes at once; None means any number.
        attempts: All executions of the activity `attempt`.
    """

    activities: Mapping[str, Activity]
    places: int | None = None
    attempts: list[Execution] = field(default_factory=list)
    _queue: deque[Doing] = field(default_factory=deque)
    _running: dict[str, list[Doing]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.world.on_birth.append(lambda _worker: self._take_queued())
        self.world.on_death.append(lambda worker: self._begin_again(worker.name))

    def _schedule(self, instance: Instance, call: CallActivity) -> None:
        instance.past.append(call)
        instance.awaits.add((call.name, call.number))
        if self._loses(instance, call.name):
            return
        self.under_way += 1
        self._dispatch(Doing(instance.asker, call.number, call.name, self._newer(call.input)))

    def _dispatch(self, doing: Doing) -> None:
        """Give an activity to a worker; when none is up or has a place, it waits in the queue."""
        if doing.done:
            return
        free = [worker for worker in self.world.workers if self._has_place(worker)]
        if not free:
            self._queue.append(doing)
            return
        worker = self.world.rng.choice(free)
        given = json.loads(doing.given)
        work = self.activities[doing.name](given, TaskHub(worker.name))
        self._running.setdefault(worker.name, []).append(doing)
        execution = Execution(given, self.world.now())
        if doing.name == ATTEMPT:
            self.attempts.append(execution)
        task = self.world.run(worker, _awaited(work), execution)
        task.add_done_callback(lambda done: self._done(worker.name, doing, done, execution))
        if self.world.happens(self.world.chances.twice):
            self.world.later(self.world.rng.uniform(0.01, 5), self._dispatch_again, doing)

    def _has_place(self, worker: Worker) -> bool:
        return self.places is None or len(self._running.get(worker.name, ())) < self.places

    def _take_queued(self) -> None:
        """Give what waits to workers as long as one has a place."""
        while self._queue and any(self._has_place(worker) for worker in self.world.workers):
            self._dispatch(self._queue.popleft())

    def _dispatch_again(self, doing: Doing) -> None:
        if any(doing in running for running in self._running.values()):
            self._dispatch(doing)

    def _begin_again(self, worker: str) -> None:
        """Give to others what a dead worker had, once its lease is over; or it has failed, as on Azure."""
        for doing in self._running.pop(worker, []):
            if doing.done or any(doing in running for running in self._running.values()):
                continue  # It ran here twice, or runs elsewhere.
            if self.world.happens(self.world.chances.failed):
                self._end(doing, RuntimeError("the worker died"))
            else:
                self.world.later(self.world.rng.uniform(5, 60), self._dispatch, doing)

    def _done(self, worker: str, doing: Doing, task: "asyncio.Task[Any]", execution: Execution) -> None:
        execution.ended_at = self.world.now()
        failure = execution.raised = None if task.cancelled() else task.exception()
        if task.cancelled() or doing.done or doing not in self._running.get(worker, []):
            return
        if failure is not None:
            self._end(doing, _as_exception(failure))
            return

        def taken() -> None:
            execution.counts = True

        self._end(doing, Completed(doing.task_id, json.dumps(task.result())), taken)

    def _end(
        self, doing: Doing, ended: Completed | Exception, taken: Callable[[], None] = lambda: None
    ) -> None:
        """Answer an activity, once."""
        doing.done = True
        for running in self._running.values():
            running[:] = [each for each in running if each is not doing]
        self._take_queued()
        self.under_way -= 1
        asker = self.instances.get(doing.asker[0])
        if asker is not None and self._loses(asker, f"the answer of {doing.name}"):
            return
        event: Event = (
            Failed(doing.task_id, helpers.new_failure_details(ended))
            if isinstance(ended, Exception)
            else ended
        )
        asked = (doing.name, doing.task_id)
        seconds = self.world.delay_seconds()
        self._deliver(seconds, lambda: self._answer(doing.asker, asked, event, taken))


async def _awaited[T](work: Awaitable[T]) -> T:
    return await work


def _as_exception(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError(type(error).__name__)
