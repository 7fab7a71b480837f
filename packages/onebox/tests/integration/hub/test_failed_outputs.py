"""The output of an orchestration that failed, in each way of failing: plain text, as on Azure Storage."""

import inspect
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any, override

import durabletask.internal.orchestrator_service_pb2 as pb
import pytest
from durabletask import task
from durabletask.entities import DurableEntity, EntityInstanceId
from durabletask.worker import _OrchestrationExecutor

from onebox.hub import HubSettings
from onebox.hub.invoker import InvocationLostError
from onebox.hub.model import Start, Status
from onebox.hub.settings import VersionFailure, Versioning, VersionMatch
from tests.support.onebox.backends import SDK_NOTICE, running_hub
from tests.support.onebox.durable_app import App, AppInvoker

pytestmark = SDK_NOTICE

type Steps = Generator[task.Task[Any], Any, Any]

app = App()


@app.activity
def fail(message: str) -> str:
    raise LookupError(message)


@app.activity
def die(_: Any) -> None:
    """Its worker dies."""


@app.entity
class Fragile(DurableEntity):
    def fail(self, message: str) -> None:
        raise LookupError(message)


@app.entity
class Deadly(DurableEntity):
    """Its worker dies."""

    def fail(self, _: str) -> None:
        """Do nothing."""


@app.orchestrator
def raises(_: task.OrchestrationContext, message: str) -> None:
    raise LookupError(message)


@app.orchestrator
def calls(ctx: task.OrchestrationContext, activity: str) -> Steps:
    yield ctx.call_activity(activity, input="no luck")


@app.orchestrator
def asks(ctx: task.OrchestrationContext, entity: str) -> Steps:
    yield ctx.call_entity(
        EntityInstanceId(entity, "one"), "fail" if entity == "fragile" else "get", "no luck"
    )


@app.orchestrator
def has_child(ctx: task.OrchestrationContext, name: str) -> Steps:
    yield ctx.call_sub_orchestrator(name, input="no luck", instance_id="child")


class DyingInvoker(AppInvoker):
    """Loses the worker of `die` and of `deadly`."""

    @override
    async def activity(self, name: str, instance_id: str, task_id: int, input_json: str | None) -> str | None:
        if name == "die":
            raise InvocationLostError("the process at the other end ended")
        return await super().activity(name, instance_id, task_id, input_json)

    @override
    async def entity(self, name: str, request: pb.EntityBatchRequest) -> pb.EntityBatchResult:
        if name == "deadly":
            raise InvocationLostError("the process at the other end ended")
        return await super().entity(name, request)


VERSIONED = HubSettings(versioning=Versioning("1.0", VersionMatch.STRICT, VersionFailure.FAIL))
TASK_FAILED = "durabletask.task.TaskFailedError"
ASKED = f"{TASK_FAILED}: Operation 'fail' on entity '@fragile@one' failed with error"
CALL_FAILED = f"{TASK_FAILED}: i: Activity task #1 failed"


@pytest.fixture(autouse=True)
def sdk_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what an app that was loaded in this process may have put in front of the SDK's executor."""
    process = _OrchestrationExecutor.process_event
    monkeypatch.setattr(_OrchestrationExecutor, "process_event", inspect.unwrap(process))


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("raises", "no luck", "builtins.LookupError: no luck"),
        ("calls", "fail", f"{CALL_FAILED}: no luck"),
        ("calls", "die", f"{CALL_FAILED}: Function 'die' failed with an unhandled exception."),
        ("calls", "none", f"{CALL_FAILED}: Activity function named 'none' was not registered!"),
        (
            "asks",
            "fragile",
            f"{ASKED}: no luck",
        ),
        ("asks", "deadly", "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"),
        ("has_child", "raises", f"{TASK_FAILED}: Sub-orchestration task #1 failed: no luck"),
        ("none", "", "OrchestratorNotRegisteredError: A 'none' orchestrator was not registered."),
    ],
)
@pytest.mark.shows("H4", "H6")
async def test_a_failed_output_is_the_kind_and_the_message(
    name: str, given: str, text: str, tmp_path: Path
) -> None:
    assert await failed_output(tmp_path, Start("i", name, input=json.dumps(given))) == text


async def test_the_output_of_another_version_says_so(tmp_path: Path) -> None:
    start = Start("i", "raises", version="2.0", input='"no luck"')
    assert await failed_output(tmp_path, start, VERSIONED) == (
        "VersionMismatch: Orchestration version did not comply with Worker Versioning"
    )


async def failed_output(folder: Path, start: Start, settings: HubSettings | None = None) -> str | None:
    """Run an orchestration that fails; return its output as clients see it."""
    async with running_hub(folder, DyingInvoker(app), settings=settings) as hub:
        await hub.tasks.start(start)
        ended = await hub.tasks.wait_finished(start.instance_id)
    assert ended.status is Status.FAILED
    return ended.shown_output
