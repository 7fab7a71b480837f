"""Lives of the app in processes of their own, forked from one that has imported everything: a start is quick.

    be_cut      lets every flow run once to find the places where it writes, then gives each place a subject,
                waits until all of them stand behind their places, and is killed
    be_struck   goes on, and is killed at a point of the task hub
    end         does what is left to do, and reports

The last two do everything twice that a host may do twice.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, Never

from durable_retry.features.outbox.sending import SWEPT_AFTER, sweep
from durable_retry.hub.task_hub import close_clients
from durable_retry.operations.entities import read_record
from durable_retry.runtime import clock
from durable_retry.upkeep.rounds import SETTLED_AFTER, finish_left_over
from onebox.hub import FaultPoint
from onebox.hub.listing import InstanceFilter
from tests.fault.app.crash.flows import FLOWS, flow_of
from tests.fault.app.crash.places import CLIENT, Place, Places, die
from tests.fault.app.crash.small_app import SmallApp, small_app
from tests.support.onebox.workload import Cut

_ALL_SECONDS: Final = 220
_TOGETHER_SECONDS: Final = 100
_LATER: Final = max(SETTLED_AFTER, SWEPT_AFTER) + timedelta(minutes=1)


@dataclass(frozen=True)
class Life:
    """One life.

    Attributes:
        folder: Where the task hub is, and what a life leaves for the next one.
        env: The app's settings.
    """

    folder: Path
    env: dict[str, str]

    def be_cut(self) -> None:
        self._run(self._be_cut())

    def be_struck(self, point: FaultPoint, visit: int, subjects: list[str]) -> None:
        """Die at a visit of a point while some subjects are worked for."""
        self._run(self._be_struck(point, visit, subjects))

    def end(self) -> None:
        self._run(self._end())

    def _run(self, life: Awaitable[None]) -> None:
        os.environ.update(self.env)

        async def with_threads() -> None:
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(16))
            await life

        asyncio.run(with_threads())

    async def _be_cut(self) -> None:
        async with small_app(self.folder, Places(), twice=False) as app:
            cuts = await _places_of_all(app)
            await _together(flow_of(subject).prepare(app, subject) for subject in cuts)
            self._leave(app, cuts)
            app.places.hold(cuts)
            asking = [asyncio.ensure_future(_ask(app, subject)) for subject in cuts]
            try:
                async with asyncio.timeout(_TOGETHER_SECONDS):
                    await app.places.complete.wait()
            except TimeoutError:
                _fail_with_missing(app, asking)
            die()

    async def _be_struck(self, point: FaultPoint, visit: int, subjects: list[str]) -> None:
        async with small_app(self.folder, Places(), twice=True, faults=Cut(point, visit, die)) as app:
            self._leave(app, dict.fromkeys(subjects))
            await _together(_ask(app, subject) for subject in [*subjects, *subjects])
            await _quiet(app)

    async def _end(self) -> None:
        async with small_app(self.folder, Places(), twice=True) as app:
            left = json.loads((self.folder / "left.json").read_text())
            app.letters.update(left["letters"])
            await _together(
                _ask(app, subject)
                for subject, place in left["cuts"].items()
                if flow_of(subject).is_asked_again(place)
            )
            await _quiet(app)
            for _ in range(2):
                await finish_left_over(app.binding, clock.now() + _LATER)
                await sweep(app.binding, clock.now() + _LATER)
            await _quiet(app)
            (self.folder / "report.json").write_text(json.dumps(await _report(app)))
            await close_clients()

    def _leave(self, app: SmallApp, cuts: dict[str, Any]) -> None:
        file = self.folder / "left.json"
        left = json.loads(file.read_text()) if file.exists() else {"letters": {}, "cuts": {}}
        left["letters"] |= app.letters
        left["cuts"] |= cuts
        file.write_text(json.dumps(left))


async def _places_of_all(app: SmallApp) -> dict[str, Place]:
    """Let every flow run once, and give each place where it wrote a subject.

    A place of an activity that an earlier flow passed too is that flow's: what the task hub makes of a cut
    activity does not depend on the flow. What clients wrote is each flow's own.
    """
    first = [f"{flow.name}-0" for flow in FLOWS]
    await _together(flow_of(subject).prepare(app, subject) for subject in first)
    app.places.passed.clear()
    await _together(_ask(app, subject) for subject in first)
    await _quiet(app)
    cuts: dict[str, Place] = {}
    for flow in FLOWS:
        for number, place in enumerate(app.places.passed[f"{flow.name}-0"], start=1):
            if place[0].startswith(CLIENT) or place not in cuts.values():
                cuts[f"{flow.name}-{number}"] = place
    return cuts


def _fail_with_missing(app: SmallApp, asking: Iterable[asyncio.Task[None]]) -> Never:
    """Say who did not come to their places, and what went wrong."""
    missing = {
        subject: place for subject, place in app.places.holds.items() if subject not in app.places.held
    }
    wrong = [error for one in asking if one.done() and (error := one.exception())]
    raise AssertionError(f"not at their places: {missing}; {wrong}")


async def _ask(app: SmallApp, subject: str) -> None:
    flow = flow_of(subject)
    with app.places.on_behalf_of(subject, flow.parts(subject)):
        await flow.ask(app, subject)


async def _together(doing: Iterable[Awaitable[None]]) -> None:
    async with asyncio.timeout(_TOGETHER_SECONDS):
        await asyncio.gather(*doing)


async def _quiet(app: SmallApp) -> None:
    """Wait until every orchestration has ended, also those that others start at their end."""
    async with asyncio.timeout(_TOGETHER_SECONDS):
        while running := _running(app):
            for instance_id in running:
                await app.hub.tasks.wait_finished(instance_id)
        await app.hub.settled()


def _running(app: SmallApp) -> list[str]:
    states = app.hub.tasks.query(InstanceFilter(), None, None, with_payloads=False).items
    return [state.id for state in states if not state.status.is_terminal]


async def _report(app: SmallApp) -> dict[str, Any]:
    """What the task hub knows of operations, by instances and by the records of keys, and of sagas."""
    found = app.hub.tasks.query(InstanceFilter(), None, None).items
    documents = {
        state.id: json.loads(state.output or "{}") for state in found if state.name in {"operation", "saga"}
    }
    operations = {each: document for each, document in documents.items() if each.startswith("op-")}
    records = {each: await read_record(app.binding, each) for each in operations}
    return {
        "instances": {each: document.get("status") for each, document in operations.items()},
        "records": {
            each: ((record and record.document) or {}).get("status") for each, record in records.items()
        },
        "sagas": [document for each, document in documents.items() if each not in operations],
        "activities": sorted(app.activities),
    }


_FORKING = get_context("forkserver")
_FORKING.set_forkserver_preload([__name__, "pytest"])


def exit_code_of(live: Callable[..., None], *given: Any) -> int:
    """Live a life in a process of its own, and return its exit code."""
    process = _FORKING.Process(target=live, args=given)
    process.start()
    process.join(_ALL_SECONDS)
    code = process.exitcode
    if code is None:
        process.kill()
        process.join()
        raise TimeoutError(f"{live} did not end")
    return code
