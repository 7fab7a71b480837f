"""A stage for the outbox, a batch or a saga, and the ways in which its steps can be cut short.

The orchestrator runs turn by turn through the SDK's executor, as in `tests.support.stage`; its activities
are the app's own. Every write of the app's tables and every message to a queue is a place to cut.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, override
from unittest.mock import patch

import pytest
from durabletask.internal import orchestrator_service_pb2 as pb

from durable_retry.hub.task_hub import TaskHub
from durable_retry.runtime import clock
from durable_retry.storage import queues, tables
from tests.support.builders import Activities, an_operation
from tests.support.history import End
from tests.support.stage import Stage

type Mode = Literal["before", "after"]
type Activity = Callable[[dict[str, Any]], Awaitable[Any]]


class CutError(OSError):
    """The process ended here, as far as the step can see: trouble that passes."""


class PartStage(Stage):
    """One orchestration that is no operation on its stage."""

    def __init__(
        self, orchestrator: Any, instance_id: str, given: dict[str, Any], answer: Activities
    ) -> None:
        super().__init__(an_operation(operation_id=instance_id), answer, orchestrator)
        self.finished = False
        self._begin(json.dumps(given))

    @property
    @override
    def ended(self) -> bool:
        return self.finished or self.failure is not None

    @override
    def _complete(self, end: End) -> None:
        self.finished = end.status == pb.ORCHESTRATION_STATUS_COMPLETED
        super()._complete(end)


@dataclass
class Cuts:
    """Counts the places where a step can be cut, and cuts at one.

    Attributes:
        at: Which place, from 1; 0 cuts nowhere.
        mode: Whether the write of that place is made before the cut.
        places: Places passed so far.
    """

    at: int = 0
    mode: Mode = "before"
    places: int = 0

    async def pass_through[T](self, write: Callable[[], Awaitable[T]]) -> T:
        self.places += 1
        hit = self.places == self.at
        if hit and self.mode == "before":
            raise CutError
        done = await write()
        if hit:
            raise CutError
        return done

    @property
    def missed(self) -> bool:
        """Whether there was no such place any more."""
        return self.places < self.at

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the cuts into the app's tables and queues."""
        run, send = tables._run_on_table, queues.send_message

        async def cut_run(table: str, action: Any) -> Any:
            return await self.pass_through(lambda: run(table, action))

        async def cut_send(queue: str, text: str) -> None:
            await self.pass_through(lambda: send(queue, text))

        with (
            patch.object(tables, "_run_on_table", cut_run),
            patch("durable_retry.features.outbox.sending.send_message", cut_send),
        ):
            yield


@dataclass
class Turns:
    """Answers a stage with the app's own activities.

    Attributes:
        activities: By name.
        twice: Whether every activity is executed a second time, as a host may.
        log: Names in the order in which they were called.
    """

    activities: dict[str, Activity]
    twice: bool = False
    log: list[str] = field(default_factory=list)

    def answer(self, name: str, given: dict[str, Any]) -> Any:
        self.log.append(name)
        try:
            return self._run(name, given)
        except Exception as error:  # noqa: BLE001 - a host turns whatever an activity raises into a failure
            return error

    def _run(self, name: str, given: dict[str, Any]) -> Any:
        first = asyncio.run(_awaited(self.activities[name](given)))
        return asyncio.run(_awaited(self.activities[name](given))) if self.twice else first


async def _awaited[T](running: Awaitable[T]) -> T:
    return await running


@contextmanager
def cut_at_the_start(*, after: bool) -> Iterator[None]:
    """Expect a crash in the block, before an operation is started or after."""
    start = TaskHub.start_operation

    async def cut(*given: Any, **more: Any) -> bool:
        if after:
            await start(*given, **more)
        raise CutError

    with patch.object(TaskHub, "start_operation", cut), pytest.raises(CutError):
        yield


@contextmanager
def on_the_clock_of(stage: Stage) -> Iterator[None]:
    """Let the app read the stage's clock."""
    with clock.reading(lambda: stage.now):
        yield
