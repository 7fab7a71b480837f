"""Histories of orchestrations, replayed by the SDK's own executor against the code that is here.

    python -m durable_retry.features.histories.replay HISTORIES

replays the files in a folder against the app in the current one, and writes the differences as JSON.
`retryctl check-replay` runs it with the app's own Python.

A history fits when the code takes each step that it has, in its order, and no other. The executor compares
numbers, kinds and names of steps; inputs, times and the operations of entities are not compared.
"""

import base64
import importlib
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self
from unittest.mock import patch

import azure.functions as func
from azure.durable_functions.worker import DurableFunctionsWorker
from durabletask import task
from durabletask.internal import orchestrator_service_pb2 as pb
from durabletask.worker import _OrchestrationExecutor
from google.protobuf.json_format import ParseDict, ParseError

from durable_retry.hub.decorated import orchestrator_function
from durable_retry.hub.executor_guard import guard_executor
from durable_retry.testing import use_placeholders


@dataclass(frozen=True, slots=True)
class RecordedHistory:
    """What one execution of an orchestration has done so far.

    Attributes:
        orchestrator: Its name.
        events: Those of its whole turns; none before the first has ended.
        has_completed: Whether the last turn is the last of all.
    """

    instance_id: str
    orchestrator: str
    events: list[pb.HistoryEvent]
    has_completed: bool

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Read `{"instance_id", "events", "output"}`; without `output` the last event says whether it ended.

        Raises:
            ValueError: It is not such a document.
        """
        try:
            events = [ParseDict(event, pb.HistoryEvent()) for event in document["events"]]
            instance_id = str(document["instance_id"])
        except (LookupError, TypeError, ParseError) as error:
            raise ValueError(f"is no history: {error}") from None
        starts = (event.executionStarted.name for event in events if event.HasField("executionStarted"))
        ended = "output" in document or any(event.HasField("executionCompleted") for event in events)
        # Some stores write a turn in pieces: what is behind the last whole turn may not be all of the next.
        turns = [at for at, event in enumerate(events, 1) if event.HasField("orchestratorCompleted")]
        return cls(instance_id, next(starts, ""), events[: max(turns, default=0)], ended)


@dataclass(frozen=True, slots=True)
class Difference:
    """The first step in which the code and a history differ.

    Attributes:
        event: Number of the event in the history, from 1; the last one where the code goes on behind it.
        history: What the history has there.
        code: What the code does.
    """

    instance_id: str
    orchestrator: str
    event: int
    history: str
    code: str


@dataclass(slots=True)
class ReplayResult:
    """The result of a history's replay.

    Attributes:
        difference: None where the history fits.
        result: What the orchestration returned, as JSON text; None unless it has completed.
    """

    difference: Difference | None = None
    result: str | None = None


def replayed(orchestrator: Any, history: RecordedHistory) -> ReplayResult:
    """Replay a history against an orchestrator: its function, or what `orchestration_trigger` returned."""
    if not history.events:
        return ReplayResult()
    guard_executor()
    watch = _Watch(history, _OrchestrationExecutor.process_event)
    *past, last = history.events
    request = pb.OrchestratorRequest(instanceId=history.instance_id, pastEvents=past, newEvents=[last])
    with patch.object(_OrchestrationExecutor, "process_event", watch.bound()):
        answer = DurableFunctionsWorker().execute_orchestration_request(
            orchestrator_function(orchestrator), base64.b64encode(request.SerializeToString()).decode()
        )
    response = pb.OrchestratorResponse()
    response.ParseFromString(base64.b64decode(answer))
    return watch.result(response.actions)


class _Watch:
    """Notes each event that the executor takes, where it refuses one, and where the code ends."""

    def __init__(self, history: RecordedHistory, process_event: Callable[..., None]) -> None:
        self._history = history
        self._process_event = process_event
        self._number = 0
        self._depth = 0
        self._last_turn = 0
        self._ended_at = 0
        self._refused: Difference | None = None

    def bound(self) -> Callable[..., None]:
        """Return the function to patch the executor's method with."""

        def process_event(executor: Any, context: Any, event: pb.HistoryEvent) -> None:
            if self._depth == 0:  # An event that ends a suspension has those inside that came during it.
                self._number += 1
                if event.HasField("orchestratorStarted"):
                    self._last_turn = self._number
            here, was_complete = _code_at(context, event.eventId), context._is_complete
            self._depth += 1
            try:
                self._process_event(executor, context, event)
            except Exception as error:
                # After the code has ended the executor takes the end, which has a step's number, for a step.
                is_refusal = was_complete or isinstance(error, task.NonDeterminismError)
                self._refuse(event, here if is_refusal else f"raises {type(error).__name__}: {error}")
                raise
            finally:
                self._depth -= 1
            if context._is_complete and not was_complete:
                self._ended_at = self._number

        return process_event

    def _refuse(self, event: pb.HistoryEvent, code: str) -> None:
        self._refused = self._refused or self._difference(self._number, _step(event, "eventType"), code)

    def _difference(self, number: int, history: str, code: str) -> Difference:
        return Difference(self._history.instance_id, self._history.orchestrator, number, history, code)

    def result(self, actions: Iterable[pb.OrchestratorAction]) -> ReplayResult:
        """Return the result of the replay, by what the code would do next."""
        ends = [action for action in actions if action.HasField("completeOrchestration")]
        further = [
            _step(action, _ACTION) for action in actions if not action.HasField("completeOrchestration")
        ]
        result = ends[0].completeOrchestration.result.value if ends else None
        if self._refused is not None:
            return ReplayResult(self._refused)
        if ends and not (self._history.has_completed and self._ended_at > self._last_turn):
            return ReplayResult(self._difference(self._ended_at, "goes on", "ends"))
        if further:
            return ReplayResult(self._difference(self._number, "no further step", further[0]))
        if self._history.has_completed and not ends:
            return ReplayResult(self._difference(self._number, "the end", "waits"))
        return ReplayResult(result=result)


def _code_at(context: Any, number: int) -> str:
    """Say what the code does where the history has the step of a number."""
    if context._is_complete:
        return "has ended"
    if (action := context._pending_actions.get(number)) is not None:
        return _step(action, _ACTION)
    events = ", ".join(context._pending_events)
    return f"waits for the event {events}" if events else "waits"


_ACTION: Final = "orchestratorActionType"
_ACTIVITY: Final = "activity {0.name}"
_CHILD: Final = "orchestration {0.name}"
_STEPS: Final[Mapping[str, str]] = {
    "taskScheduled": _ACTIVITY,
    "scheduleTask": _ACTIVITY,
    "timerCreated": "a timer",
    "createTimer": "a timer",
    "subOrchestrationInstanceCreated": _CHILD,
    "createSubOrchestration": _CHILD,
    "eventSent": "event {0.name} to {0.instanceId}",
    "sendEvent": "event {0.name} to {0.instance.instanceId}",
    "entityOperationCalled": "call of {0.operation} of {0.targetInstanceId.value}",
    "entityOperationSignaled": "signal {0.operation} to {0.targetInstanceId.value}",
}
"""Words for the steps of a history's events and of the executor's actions; others have their kind's name."""


def _step(message: Any, kinds: str) -> str:
    kind = message.WhichOneof(kinds)
    content = getattr(message, kind)
    if kind == "sendEntityMessage":
        return _step(content, "EntityMessageType")
    words: str = _STEPS.get(kind, kind)
    return words.format(content)


def orchestrators_in(folder: Path) -> dict[str, Any]:
    """Load the app in a folder and return its orchestrators by name; the folder becomes the current one.

    App settings that the environment lacks come from `local.settings.json`, or are placeholders.

    Raises:
        LookupError: There is no app.
    """
    script = folder / os.environ.get("PYTHON_SCRIPT_FILE_NAME", "function_app.py")
    if not script.is_file():
        raise LookupError(f"no {script.name} in {folder}: is this the folder of a function app?")
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    settings = Path("local.settings.json")
    if settings.is_file():
        for name, value in json.loads(settings.read_text(encoding="utf-8-sig")).get("Values", {}).items():
            os.environ.setdefault(name, value)
    use_placeholders()
    module = importlib.import_module(script.stem)
    app = next((value for value in vars(module).values() if isinstance(value, func.FunctionRegister)), None)
    if app is None:
        raise LookupError(f"{script} declares no function app")
    triggers = ((function, vars(function.get_trigger())) for function in app.get_functions())
    return {
        trigger.get("orchestration") or str(function.get_function_name()): function.get_user_function()
        for function, trigger in triggers
        if trigger["type"] == "orchestrationTrigger"
    }


def histories_in(folder: Path) -> list[RecordedHistory]:
    """Read the histories in the files of a folder and of those in it.

    Raises:
        ValueError: A file is none.
    """
    histories = []
    for file in sorted(folder.rglob("*.json")):
        try:
            histories.append(RecordedHistory.read(json.loads(file.read_text(encoding="utf-8"))))
        except ValueError as error:
            raise ValueError(f"{file} {error}") from None
    return histories


def differences(
    orchestrators: Mapping[str, Any], histories: Iterable[RecordedHistory]
) -> Iterator[Difference]:
    """Yield the first difference of each history that does not fit."""
    for history in histories:
        if history.events and history.orchestrator not in orchestrators:
            step = (f"orchestration {history.orchestrator}", "has no orchestrator of this name")
            yield Difference(history.instance_id, history.orchestrator, 1, *step)
        elif difference := replayed(orchestrators.get(history.orchestrator), history).difference:
            yield difference


def main(folder: str) -> None:
    """Replay the histories in a folder against the app in the current one, and write the differences."""
    # What the app prints is no part of the document.
    with redirect_stdout(sys.stderr):
        try:
            histories = [history for history in histories_in(Path(folder)) if history.events]
            found = list(map(asdict, differences(orchestrators_in(Path.cwd()), histories)))
        except (LookupError, ValueError) as error:
            sys.exit(str(error))
    counts = Counter(history.orchestrator for history in histories)
    sys.stdout.write(json.dumps({"orchestrators": counts, "differences": found}))


if __name__ == "__main__":
    main(sys.argv[1])
