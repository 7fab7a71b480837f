"""What the death of a worker leaves of its work, and messages to entities without a timestamp."""

import asyncio
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any, override

import durabletask.internal.orchestrator_service_pb2 as pb
import pytest
from durabletask import task
from durabletask.entities import DurableEntity, EntityInstanceId

from onebox.hub import HubSettings
from onebox.hub.invoker import InvocationLostError, TurnRequest
from onebox.hub.model import Start, Status
from onebox.hub.settings import AzureTerms
from tests.support.onebox.backends import SDK_NOTICE, entity_state, running_hub, status_of
from tests.support.onebox.durable_app import App, WaitingInvoker

pytestmark = SDK_NOTICE

COUNTER = EntityInstanceId("counter", "one")
UNLABELLED = HubSettings(drops_entity_messages=True)
NEVER = {"lost": 0.0, "repeated": 0.0, "overtaken": 0.0, "doubled": 0.0, "raced": 0.0, "skew_seconds": 0.0}

app = App()


@app.activity
def double(value: int) -> int:
    return value * 2


@app.entity
class Counter(DurableEntity):
    def add(self, amount: int) -> int:
        total: int = self.get_state(int, 0) + amount
        self.set_state(total)
        return total


@app.orchestrator
def doubled(ctx: task.OrchestrationContext, value: int) -> Generator[task.Task[Any], Any, Any]:
    try:
        return (yield ctx.call_activity("double", input=value))
    except task.TaskFailedError as failed:
        return [failed.details.error_type, failed.details.message]


@app.orchestrator
def counted(ctx: task.OrchestrationContext, _: Any) -> Generator[task.Task[Any], Any, Any]:
    return (yield ctx.call_entity(COUNTER, "add", 1))


@app.orchestrator
def signals(ctx: task.OrchestrationContext, _: Any) -> Generator[task.Task[Any], Any, Any]:
    ctx.signal_entity(COUNTER, "add", 1)
    return (yield ctx.call_activity("double", input=1))


@app.orchestrator
def locks(ctx: task.OrchestrationContext, _: Any) -> Generator[task.Task[Any], Any, Any]:
    with (yield ctx.lock_entities([COUNTER])):
        return "locked"


class Dying(WaitingInvoker):
    """Its worker dies at the first run of each kind of function."""

    def __init__(self) -> None:
        super().__init__(app)
        self.runs: list[str] = []

    def _die_once(self, kind: str) -> None:
        self.runs.append(kind)
        if self.runs.count(kind) == 1:
            raise InvocationLostError("the process at the other end ended")

    @override
    async def orchestrator(self, name: str, request: TurnRequest) -> pb.OrchestratorResponse:
        self._die_once("orchestrator")
        return await super().orchestrator(name, request)

    @override
    async def entity(self, name: str, request: pb.EntityBatchRequest) -> pb.EntityBatchResult:
        self._die_once("entity")
        return await super().entity(name, request)

    @override
    async def activity(self, name: str, instance_id: str, task_id: int, input_json: str | None) -> str | None:
        self._die_once("activity")
        return await super().activity(name, instance_id, task_id, input_json)


@pytest.fixture
def dying() -> Dying:
    return Dying()


@pytest.mark.shows("H5")
async def test_an_activity_whose_worker_dies_has_failed_and_a_turn_is_repeated(
    tmp_path: Path, dying: Dying
) -> None:
    async with running_hub(tmp_path, dying) as hub:
        await hub.tasks.start(Start("one", "doubled", input="4"))
        ended = await hub.tasks.wait_finished("one")
    assert ended.status is Status.COMPLETED
    assert json.loads(ended.output or "") == [
        "FunctionInvocationFailed",
        "Function 'double' failed with an unhandled exception.",
    ]
    assert dying.runs.count("activity") == 1
    assert dying.runs.count("orchestrator") == 3


@pytest.mark.shows("H3")
async def test_a_batch_whose_worker_dies_answers_calls_with_text_loses_signals_and_keeps_the_state(
    tmp_path: Path, dying: Dying
) -> None:
    async with running_hub(tmp_path, dying) as hub:
        await hub.tasks.start(Start("one", "counted"))
        ended = await hub.tasks.wait_finished("one")
        history = hub.tasks.history("one")
        await hub.tasks.signal_entity(str(COUNTER), "add", "5")
        await hub.settled()
        entity = hub.tasks.get_entity(str(COUNTER))
    (call,) = (each.entityOperationCalled for each in history if each.HasField("entityOperationCalled"))
    (answer,) = (each.eventRaised for each in history if each.HasField("eventRaised"))
    text = "Invocation of function 'counter' failed with an exception."
    assert answer.name == call.requestId
    assert json.loads(answer.input.value) == {
        "result": text,
        "exceptionType": "entity dispatch failed",
        "failureDetails": {
            "ErrorType": "FunctionInvocationFailed",
            "ErrorMessage": text,
            "StackTrace": None,
            "InnerFailure": None,
            "IsNonRetriable": True,
        },
    }
    assert ended.status is Status.FAILED  # the SDK parses the text as JSON, outside of the generator
    assert entity is not None
    assert entity.state == "5"


async def test_a_signal_in_a_batch_whose_worker_dies_is_gone(tmp_path: Path, dying: Dying) -> None:
    async with running_hub(tmp_path, dying) as hub:
        await hub.tasks.signal_entity(str(COUNTER), "add", "5")
        await hub.settled()
        assert dying.runs == ["entity"]
        assert hub.tasks.get_entity(str(COUNTER)) is None


@pytest.mark.parametrize("orchestrator", ["counted", "locks"])
@pytest.mark.shows("H1")
async def test_an_orchestrations_message_to_an_entity_is_dropped_while_there_is_a_reorder_window(
    tmp_path: Path, orchestrator: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_hub(tmp_path, app, settings=UNLABELLED) as hub:
        await hub.tasks.start(Start("one", orchestrator))
        await hub.settled()
        assert status_of(hub, "one") is Status.RUNNING
    (warning,) = [each for each in caplog.messages if "are dropped" in each]
    assert "entityMessageReorderWindowInMinutes to 0 in host.json" in warning


async def test_a_signal_of_an_orchestration_is_dropped_and_that_of_a_client_is_not(tmp_path: Path) -> None:
    async with running_hub(tmp_path, app, settings=UNLABELLED) as hub:
        await hub.tasks.start(Start("one", "signals"))
        assert (await hub.tasks.wait_finished("one")).output == "2"
        await hub.settled()
        assert hub.tasks.get_entity(str(COUNTER)) is None
        await hub.tasks.signal_entity(str(COUNTER), "add", "5")
        await hub.settled()
        assert entity_state(hub, str(COUNTER)) == "5"


async def test_workers_die_by_chance_on_azures_terms(tmp_path: Path) -> None:
    terms = AzureTerms(1, **NEVER, died=1.0)
    async with running_hub(tmp_path, app, settings=HubSettings(azure=terms)) as hub:
        async with asyncio.timeout(30):
            await hub.tasks.start(Start("one", "doubled", input="4"))
            ended = await hub.tasks.wait_finished("one")
            assert "FunctionInvocationFailed" in (ended.output or "")
            await hub.tasks.start(Start("two", "counted"))
            assert (await hub.tasks.wait_finished("two")).status is Status.FAILED
