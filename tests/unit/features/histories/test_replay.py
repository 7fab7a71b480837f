import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from durabletask import task
from durabletask.entities import EntityInstanceId
from durabletask.internal import orchestrator_service_pb2 as pb
from google.protobuf.json_format import MessageToDict

from durable_retry.features.histories.replay import Difference, RecordedHistory, differences, replayed
from scripts.processes import ROOT
from tests.support.commands import ran

type Steps = Generator[task.Task[Any], Any, Any]
type Change = Callable[[task.OrchestrationContext, Any], Any]

NAMES: Final = ("ask", "pay")


def turn(*events: pb.HistoryEvent) -> list[pb.HistoryEvent]:
    return [started(), *events, pb.HistoryEvent(orchestratorCompleted=pb.OrchestratorCompletedEvent())]


def started() -> pb.HistoryEvent:
    return pb.HistoryEvent(orchestratorStarted=pb.OrchestratorStartedEvent())


def start(name: str = "order") -> pb.HistoryEvent:
    return pb.HistoryEvent(executionStarted=pb.ExecutionStartedEvent(name=name))


def scheduled(number: int, name: str) -> pb.HistoryEvent:
    return pb.HistoryEvent(eventId=number, taskScheduled=pb.TaskScheduledEvent(name=name))


def answered(number: int) -> pb.HistoryEvent:
    return pb.HistoryEvent(taskCompleted=pb.TaskCompletedEvent(taskScheduledId=number))


def timer(number: int) -> pb.HistoryEvent:
    return pb.HistoryEvent(eventId=number, timerCreated=pb.TimerCreatedEvent())


ASKED: Final = turn(start(), scheduled(1, "ask"))
"""The first activity was called."""
WAITING: Final = [*ASKED, *turn(answered(1))]
"""It has answered; now `order` waits for an approval."""
PAID: Final = [
    *WAITING,
    *turn(pb.HistoryEvent(eventRaised=pb.EventRaisedEvent(name="approved")), scheduled(2, "pay")),
]


def order(context: task.OrchestrationContext, _: Any) -> Steps:
    """What has written the histories."""
    yield context.call_activity("ask")
    yield context.wait_for_external_event("approved")
    yield context.call_activity("pay")


def found(orchestrator: Change, events: list[pb.HistoryEvent]) -> tuple[int, str, str] | None:
    document = {"instance_id": "order-7", "events": [MessageToDict(event) for event in events]}
    difference = replayed(orchestrator, RecordedHistory.read(document)).difference
    if difference is None:
        return None
    assert (difference.instance_id, difference.orchestrator) == ("order-7", "order")
    return difference.event, difference.history, difference.code


@pytest.mark.parametrize("events", [ASKED, WAITING, PAID, []])
def test_a_history_fits_the_code_that_has_written_it(events: list[pb.HistoryEvent]) -> None:
    assert found(order, events) is None


def test_of_each_history_that_does_not_fit_the_first_difference_is_named() -> None:
    document = {"instance_id": "order-7", "events": [MessageToDict(event) for event in ASKED]}
    absent = ("orchestration order", "has no orchestrator of this name")
    read = RecordedHistory.read(document)
    assert list(differences({}, [read])) == [Difference("order-7", "order", 1, *absent)]
    assert list(differences({"order": order}, [read])) == []

    def changed(context: task.OrchestrationContext, _: Any) -> Steps:
        yield context.call_activity("look")

    renamed = ("activity ask", "activity look")
    assert list(differences({"order": changed}, [read])) == [Difference("order-7", "order", 3, *renamed)]


def test_a_renamed_activity_is_the_first_difference() -> None:
    def changed(context: task.OrchestrationContext, _: Any) -> Steps:
        yield context.call_activity("ask")
        yield context.wait_for_external_event("approved")
        yield context.call_activity("charge")

    assert found(changed, PAID) == (10, "activity pay", "activity charge")
    assert found(changed, WAITING) is None


def test_a_changed_order_is_found_at_the_first_of_the_two() -> None:
    def changed(context: task.OrchestrationContext, _: Any) -> Steps:
        yield context.wait_for_external_event("approved")
        yield context.call_activity("ask")
        yield context.call_activity("pay")

    assert found(changed, PAID) == (3, "activity ask", "waits for the event approved")


def test_a_step_before_a_wait_is_found_while_the_history_waits() -> None:
    def changed(context: task.OrchestrationContext, _: Any) -> Steps:
        yield context.call_activity("ask")
        context.signal_entity(EntityInstanceId("counter", "orders"), "add")
        yield context.wait_for_external_event("approved")
        yield context.call_activity("pay")

    assert found(changed, WAITING) == (7, "no further step", "signal add to @counter@orders")
    assert found(changed, PAID) == (10, "activity pay", "signal add to @counter@orders")


def test_a_step_of_another_kind_is_found() -> None:
    def changed(context: task.OrchestrationContext, _: Any) -> Steps:
        yield context.call_sub_orchestrator("ask")

    def pausing(context: task.OrchestrationContext, _: Any) -> Steps:
        yield context.create_timer(timedelta(seconds=1))

    assert found(changed, ASKED) == (3, "activity ask", "orchestration ask")
    assert found(pausing, ASKED) == (3, "activity ask", "a timer")
    assert found(order, turn(start(), timer(1))) == (3, "a timer", "activity ask")


def test_a_step_less_is_found_where_the_code_has_ended() -> None:
    def shorter(context: task.OrchestrationContext, _: Any) -> Steps:
        yield context.call_activity("ask")
        yield context.wait_for_external_event("approved")

    assert found(shorter, PAID) == (10, "activity pay", "has ended")


def test_code_that_ends_where_the_history_waits_is_found() -> None:
    def hasty(context: task.OrchestrationContext, _: Any) -> Steps:
        yield context.call_activity("ask")

    assert found(hasty, WAITING) == (6, "goes on", "ends")
    assert found(lambda _context, _input: "at once", ASKED) == (3, "activity ask", "has ended")


def test_code_that_raises_is_found_with_its_error() -> None:
    def broken(context: task.OrchestrationContext, _: Any) -> Steps:
        given = yield context.call_activity("ask")
        yield given["amount"]

    assert found(broken, WAITING) == (
        6,
        "taskCompleted",
        "raises TypeError: 'NoneType' object is not subscriptable",
    )


def test_what_has_completed_must_end_in_its_last_turn() -> None:
    def until_approved(context: task.OrchestrationContext, _: Any) -> Steps:
        yield context.call_activity("ask")
        yield context.wait_for_external_event("approved")

    end = pb.HistoryEvent(executionCompleted=pb.ExecutionCompletedEvent())
    last_turn = turn(pb.HistoryEvent(eventRaised=pb.EventRaisedEvent(name="approved")), end)
    assert found(until_approved, [*WAITING, *last_turn]) is None
    assert found(order, [*WAITING, *last_turn]) == (11, "no further step", "activity pay")
    assert found(until_approved, [*PAID[:9], PAID[-1], *turn(end)]) == (9, "goes on", "ends")
    assert found(order, [*WAITING, *turn(end)]) == (10, "the end", "waits")


def test_a_turn_that_is_stored_in_part_is_left_out() -> None:
    assert found(order, [*WAITING, started(), answered(9), timer(4)]) is None


def test_what_came_while_it_was_suspended_counts() -> None:
    suspended = pb.HistoryEvent(executionSuspended=pb.ExecutionSuspendedEvent())
    resumed = pb.HistoryEvent(executionResumed=pb.ExecutionResumedEvent())
    events = [*ASKED, *turn(suspended), *turn(answered(1)), *turn(resumed, timer(2))]
    assert found(order, events) == (13, "a timer", "waits for the event approved")


def test_what_is_no_history_is_refused() -> None:
    documents: list[Any] = [{}, [], {"events": [{"no": 1}], "instance_id": "a"}, {"events": 1}]
    for document in documents:
        with pytest.raises(ValueError, match="is no history"):
            RecordedHistory.read(document)


APP: Final = """
import os

import azure.durable_functions as df

print("the app writes something")
app = df.DFApp()


@app.orchestration_trigger(context_name="context")
def order(context, _input):
    yield context.call_activity("ask")
    yield context.wait_for_external_event(os.environ["APPROVAL"])
    yield context.call_activity("pay")


@app.activity_trigger(input_name="given")
def ask(given: str) -> str:
    return given
"""
"""A user's own, with an app setting that only `local.settings.json` has."""


def run(app: Path, histories: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "durable_retry.features.histories.replay", str(histories)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return ran(command, cwd=app, env=environ)


def test_the_orchestrators_of_an_app_are_found_and_histories_of_others_named(tmp_path: Path) -> None:
    (tmp_path / "function_app.py").write_text(APP)
    (tmp_path / "local.settings.json").write_text(json.dumps({"Values": {"APPROVAL": "approved"}}))
    histories = tmp_path / "histories"
    histories.mkdir()
    for name, events in {"a": PAID, "b": [*turn(start("gone"))], "c": []}.items():
        document = {"instance_id": name, "events": [MessageToDict(event) for event in events]}
        (histories / f"{name}.json").write_text(json.dumps(document))
    done = run(tmp_path, histories)
    assert done.returncode == 0, done.stderr
    gone = Difference("b", "gone", 1, "orchestration gone", "has no orchestrator of this name")
    answer = json.loads(done.stdout)
    assert answer["orchestrators"] == {"order": 1, "gone": 1}
    assert [Difference(**each) for each in answer["differences"]] == [gone]


def test_wrong_folders_are_named(tmp_path: Path) -> None:
    assert f"no function_app.py in {tmp_path}" in run(tmp_path, tmp_path).stderr
    (tmp_path / "function_app.py").write_text("")
    assert "declares no function app" in run(tmp_path, tmp_path).stderr
    (tmp_path / "no.json").write_text("{")
    done = run(tmp_path, tmp_path)
    assert done.returncode == 1
    assert f"{tmp_path / 'no.json'} Expecting property name" in done.stderr
