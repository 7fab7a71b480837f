"""Runs turns of orchestrators: from the whole history in the SDK's executor, or lightly.

The platform replays the whole history in every turn. A light session keeps what a replay would rebuild, and
is given only what came since, on a context of a few lines: a world that runs in milliseconds needs that. The
SDK replays every turn that is repeated, and any turn now and then; both must ask for the same.
"""

import json
import uuid
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NoReturn, override

from azure.durable_functions.worker import DurableFunctionsWorker
from durabletask import task
from durabletask.entities import EntityInstanceId, EntityOperationFailedException
from durabletask.internal import helpers
from durabletask.internal import orchestrator_service_pb2 as pb
from durabletask.worker import DATETIME_STRING_FORMAT

from durable_retry.features.in_process.executions import InstanceExecution, begin_execution
from durable_retry.hub import executor_guard
from tests.support import history

_IDS: Final = uuid.uuid5(uuid.NAMESPACE_OID, "9e952958-5e33-4daf-827f-2fa12937b875")
"""The SDK's namespace of an orchestration's ids."""

_FIRST: Final = datetime(1000, 1, 1)  # noqa: DTZ001 - the SDK's clock is naive
_LONGEST_TIMER: Final = timedelta(days=2)
"""The SDK cuts timers of three days and more; those of worlds are shorter."""


class LightContext(task.OrchestrationContext):
    """An orchestration's context as far as this app uses it, without the platform's messages.

    Attributes:
        asked: Actions that no history holds, by number.
        waiting: Tasks without an answer, by number.
        called: Numbers of calls of entities by their requests' ids.
        waits: Tasks that wait for an event, by its name.
        buffered: Events that nobody waited for, in order.
        ended: Whether the execution has ended.
        status: The custom status as JSON.
    """

    def __init__(self, instance_id: str) -> None:
        self.asked: dict[int, history.Action] = {}
        self.waiting: dict[int, task.CompletableTask[Any]] = {}
        self.called: dict[str, history.CallEntity] = {}
        self.waits: dict[str, list[task.CompletableTask[Any]]] = {}
        self.buffered: list[history.Raised] = []
        self.ended = False
        self.status = ""
        self.now = _FIRST
        self.replays = True
        self._instance_id = instance_id
        self._number = 0
        self._ids = 0
        self._end: history.End | None = None
        self._carries = False

    @property
    @override
    def instance_id(self) -> str:
        return self._instance_id

    @property
    @override
    def parent_instance_id(self) -> None:
        return None

    @property
    @override
    def version(self) -> None:
        return None

    @property
    @override
    def current_utc_datetime(self) -> datetime:
        return self.now

    @property
    @override
    def is_replaying(self) -> bool:
        return self.replays

    @override
    def set_custom_status(self, custom_status: Any) -> None:
        self.status = json.dumps(custom_status)

    @override
    def create_timer(self, fire_at: datetime | timedelta) -> task.TimerTask:
        at = self.now + fire_at if isinstance(fire_at, timedelta) else fire_at
        if at.tzinfo is not None:
            at = at.astimezone(UTC).replace(tzinfo=None)
        assert at - self.now < _LONGEST_TIMER
        number = self._next()
        self.asked[number] = history.SetTimer(number, at)
        timer = self.waiting[number] = task.TimerTask()
        return timer

    @override
    def call_activity(self, activity: Any, *, input: Any = None, **_: Any) -> task.CompletableTask[Any]:
        number = self._next()
        self.asked[number] = history.CallActivity(number, activity, json.dumps(input))
        return self._task(number)

    @override
    def call_entity(
        self, entity: EntityInstanceId, operation: str, input: Any = None, **_: Any
    ) -> task.CompletableTask[Any]:
        number, request_id = self._next(), self.new_uuid()
        self.asked[number] = history.CallEntity(number, str(entity), operation, json.dumps(input), request_id)
        return self._task(number)

    @override
    def signal_entity(
        self,
        entity_id: EntityInstanceId,
        operation_name: str,
        input: Any = None,
        signal_time: datetime | None = None,
    ) -> None:
        assert signal_time is None
        number, request_id = self._next(), self.new_uuid()
        self.asked[number] = history.SignalEntity(
            number, str(entity_id), operation_name, json.dumps(input), request_id
        )

    @override
    def call_sub_orchestrator(
        self,
        orchestrator: Any,
        *,
        input: Any = None,
        instance_id: str | None = None,
        **_: Any,
    ) -> task.CompletableTask[Any]:
        assert instance_id is not None
        number = self._next()
        self.asked[number] = history.StartChild(number, orchestrator, instance_id, json.dumps(input))
        return self._task(number)

    @override
    def wait_for_external_event(self, name: str, **_: Any) -> task.CancellableTask[Any]:
        waiting: task.CancellableTask[Any] = task.CancellableTask()
        for event in self.buffered:
            if event.name == name.casefold():
                self.buffered.remove(event)
                waiting.complete(_parsed(event.data))
                return waiting
        self.waits.setdefault(name.casefold(), []).append(waiting)
        return waiting

    @override
    def send_event(self, instance_id: str, event_name: str, *, data: Any = None) -> None:
        number = self._next()
        self.asked[number] = history.SendEvent(number, instance_id, event_name, json.dumps(data))

    @override
    def continue_as_new(self, new_input: Any, *, save_events: bool = False, **_: Any) -> None:
        self.end(pb.ORCHESTRATION_STATUS_CONTINUED_AS_NEW, new_input, carries=save_events)

    @override
    def new_uuid(self) -> str:
        at = self.now.strftime(DATETIME_STRING_FORMAT)
        name = f"{self._instance_id}_{at}_{self._ids}"
        self._ids += 1
        return str(uuid.uuid5(_IDS, name))

    @override
    def lock_entities(self, entities: Any) -> NoReturn:
        raise NotImplementedError

    @override
    def _exit_critical_section(self) -> None:
        raise NotImplementedError

    def end(self, status: int, result: Any, *, carries: bool = False) -> None:
        if not self.ended:
            self.ended, self._carries = True, carries
            self._end = history.End(0, status, None if result is None else json.dumps(result))
            if status != pb.ORCHESTRATION_STATUS_CONTINUED_AS_NEW:
                self._ask_to_end(self._end)

    def fail(self, error: Exception) -> None:
        if not self.ended:
            self.ended = True
            failure = f"{helpers.get_qualified_name(type(error))}: {error}"
            self._end = history.End(0, pb.ORCHESTRATION_STATUS_FAILED, None, failure)
            self._ask_to_end(self._end)

    def turn(self) -> history.Turn:
        """Return what is asked for now."""
        executor_guard.end_turn(self)
        end = self._end
        if end is not None and end.number == 0:  # Events may still come when it continues as new.
            end.carried = tuple(self.buffered) if self._carries else ()
            self._ask_to_end(end)
        return history.Turn(list(self.asked.values()), self.status)

    def _ask_to_end(self, end: history.End) -> None:
        end.number = self._next()
        self.asked[end.number] = end

    def _task(self, number: int) -> task.CompletableTask[Any]:
        waiting = self.waiting[number] = task.CompletableTask()
        return waiting

    def _next(self) -> int:
        self._number += 1
        return self._number


_NOTHING: Final = task.CompletableTask[None]()
"""What an orchestrator that begins has waited for."""

_NOTHING.complete(None)


class UnlikeItsHistoryError(Exception):
    """A turn does not ask for what the history says that it asked for."""


@dataclass
class Session:
    """An execution as it stands after its last turn.

    Attributes:
        turns: Who began it.
        orchestrator: Its generator function.
        fed: How many events of its history it has seen.
    """

    turns: "Turns"
    orchestrator: Any
    context: LightContext
    fed: int = 0
    _generator: Generator[Any, Any, Any] | None = None
    _yielded: Any = None

    def continued(self, past: Sequence[history.Event], new: Sequence[history.Event]) -> history.Turn:
        """Return the answer to a turn."""
        self._feed(past[self.fed :], is_replaying=True)
        self._feed(new, is_replaying=False)
        return self.context.turn()

    def _feed(self, events: Sequence[history.Event], *, is_replaying: bool) -> None:
        """Process events; an error fails the orchestration, as it does in the SDK's executor."""
        self.context.replays = is_replaying
        self.fed += len(events)
        try:
            for event in events:
                self._process(event)
        except Exception as error:  # noqa: BLE001 - whatever an orchestrator raises
            self.context.fail(error)

    def _process(self, event: history.Event) -> None:
        context = self.context
        match event:
            case history.TurnBegan():
                context.now = event.at.replace(tzinfo=None)
            case history.Completed() | history.ChildEnded():
                self._answer(event.number, _parsed(event.result))
            case history.Fired():
                if context.ended:
                    context.waiting.pop(event.number, None)
                else:
                    self._answer(event.number, None)
            case history.Replied():
                self._answer(context.called.pop(event.request_id).number, _parsed(event.output))
            case history.Raised():
                self._raise(event)
            case history.Started():
                began_at = context.now.replace(tzinfo=UTC)
                execution = InstanceExecution(event.execution, began_at, self.orchestrator.__name__)
                begin_execution(context, execution)
                self._generator = self.orchestrator(context, _parsed(event.input))
                self._yielded = _NOTHING
                self._resume()
            case history.Failed():
                message = event.details.errorMessage
                about = f"{context.instance_id}: Activity task #{event.number} failed: {message}"
                self._fail(event.number, about, event.details)
            case history.Refused():
                call = context.called.pop(event.request_id)
                entity = EntityInstanceId.parse(call.entity)
                failure = EntityOperationFailedException(entity, call.operation, event.details)
                self._fail(call.number, str(failure), failure)
            case _:
                self._recorded(event)

    def _recorded(self, event: Any) -> None:
        """Take note that the history holds what was asked for."""
        asked = self.context.asked.pop(event.number, None)
        if type(asked) is not type(event) or getattr(asked, "name", "") != getattr(event, "name", ""):
            raise UnlikeItsHistoryError(asked, event)
        if isinstance(event, history.CallEntity):
            self.context.called[event.request_id] = event

    def _raise(self, event: history.Raised) -> None:
        context, name = self.context, event.name.casefold()
        waits = context.waits.get(name)
        if waits and not context.ended:
            waiting = waits.pop(0)
            waiting.complete(_parsed(event.data))
            self._resume()
        else:
            context.buffered.append(history.Raised(name, event.data))

    def _answer(self, number: int, result: Any) -> None:
        waiting = self.context.waiting.pop(number, None)
        if waiting is not None:
            waiting.complete(result)
            self._resume()

    def _fail(self, number: int, about: str, details: Any) -> None:
        waiting = self.context.waiting.pop(number, None)
        if waiting is not None:
            waiting.fail(about, details)
            self._resume()

    def _resume(self) -> None:
        """Go on for as long as what the orchestrator waits for is there."""
        generator = self._generator
        assert generator is not None
        try:
            while self._yielded is not None and self._yielded.is_complete:
                if self._yielded.is_failed:
                    self._yielded = generator.throw(self._yielded.get_exception())
                else:
                    self._yielded = generator.send(self._yielded.get_result())
        except StopIteration as ended:
            self.context.end(pb.ORCHESTRATION_STATUS_COMPLETED, ended.value)


@dataclass
class Turns:
    """Executes turns.

    Attributes:
        orchestrators: By their names.
    """

    orchestrators: Mapping[str, Any]
    _worker: DurableFunctionsWorker | None = None

    def replayed(
        self, name: str, instance_id: str, past: Sequence[history.Event], new: Sequence[history.Event]
    ) -> history.Turn:
        """Return the answer to a turn, from a replay of the whole history in the SDK's executor."""
        request = pb.OrchestratorRequest(
            instanceId=instance_id,
            pastEvents=[event.encoded() for event in past],
            newEvents=[event.encoded() for event in new],
        )
        self._worker = self._worker or DurableFunctionsWorker()
        return history.turn_of(self._worker._run_orchestration(self.orchestrators[name], request))

    def begun(self, name: str, instance_id: str) -> Session:
        """Return a session of an orchestrator that has seen nothing."""
        return Session(self, self.orchestrators[name], LightContext(instance_id))


def _parsed(text: str | None) -> Any:
    return json.loads(text) if text else None
