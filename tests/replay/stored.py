"""Golden files of what is stored: JSON as versions of this app wrote it, which every later version must read.

    records       documents of each stored class: with every member, and with those that must be there
    needed        members of each class that must be there; the others have defaults
    messages      inputs, answers, states and custom statuses, as simulated worlds sent and stored them
    rows          rows of every table; `answers` is what the stores read from them

    python -m tests.replay.record_stored       adds what no file holds yet; what a file holds, stays

`stored/today` is written by today's classes, `stored/0.1.0` by those of that release. What histories hold
(`recording`) are messages too, and are read by the same tests.
"""

import importlib
import json
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from durabletask.internal import orchestrator_service_pb2 as pb

import durable_retry.console
import durable_retry.engine
import durable_retry.services
import durable_retry.stores
from durable_retry.console.bulk.shapes import ReplayProgress
from durable_retry.engine.circuit.breaker import breaker_from_json, breaker_to_json
from durable_retry.engine.circuit.messages import (
    ManualControlMessage,
    PermitMessage,
    ReportMessage,
    answer_from_json,
    answer_to_json,
)
from durable_retry.engine.dead_letters.filters import DeadLetterFilter
from durable_retry.engine.limits.limiter import (
    Limiter,
    SlotRequest,
    slot_answer_from_json,
    slot_answer_to_json,
)
from durable_retry.engine.operations.attempt_call import AttemptCall
from durable_retry.engine.operations.commit import Committed, Success
from durable_retry.engine.operations.completion import Completion
from durable_retry.engine.operations.debounce import DebounceRequest, Series
from durable_retry.engine.operations.idempotency import ClaimReply, ClaimRequest, KeyCompletion, KeyRecord
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.order_lanes.lane import Lane, LaneMessage, Turn
from durable_retry.engine.outbox import Delivery
from durable_retry.engine.retry.history import AttemptOutcome
from durable_retry.engine.retry.loop import RetryState, blocked_from_json, blocked_to_json
from durable_retry.engine.workflows.shapes import BatchProgress, Saga
from durable_retry.stores.outbox.index import OutboxLocation
from tests.replay.recording import load as recording
from tests.replay.recording import shapes

FOLDER: Final = Path(__file__).parent / "stored"
TODAY: Final = "today"
RELEASES: Final = tuple(sorted(folder.name for folder in FOLDER.iterdir() if folder.name != TODAY))
"""The folder of a release is that of today when it was made; 0.1.0 has what its archive can still write."""

type Documents = dict[str, list[Any]]
"""Documents by what they are of: a class, a message, a table."""


def load(version: str, file: str) -> Documents:
    """Read a golden file; empty when there is none."""
    path = FOLDER / version / f"{file}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def keep(version: str, file: str, documents: Mapping[str, Sequence[Any]]) -> None:
    """Write a golden file, a document to a line."""
    parts = []
    for name in sorted(documents):
        lines = ",\n".join(f"  {json.dumps(document)}" for document in documents[name])
        parts.append(f" {json.dumps(name)}: [\n{lines}\n ]")
    path = FOLDER / version / f"{file}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def todays_classes() -> dict[str, type[Any]]:
    """Return the classes of the library that are written as JSON and read back, by name."""
    return stored_classes(
        (
            *_modules(durable_retry.engine),
            *_modules(durable_retry.stores),
            *_modules(durable_retry.services),
            *_modules(durable_retry.console),
        )
    )


_BASES: Final = ("JsonShape", "JsonRow")


def stored_classes(modules: Iterable[ModuleType]) -> dict[str, type[Any]]:
    """Return those that these modules define."""
    found: dict[str, type[Any]] = {}
    for module in modules:
        for name, value in vars(module).items():
            is_own = isinstance(value, type) and value.__module__ == module.__name__
            if is_own and hasattr(value, "to_json") and hasattr(value, "from_json") and name not in _BASES:
                assert name not in found, f"two stored classes are called {name}"
                found[name] = value
    return found


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        yield importlib.import_module(each.name)


type Rewrite = Callable[[Any], Any]
"""Reads a document with today's code and writes it again."""


def _by(cls: Any) -> Rewrite:
    return lambda document: cls.from_json(document).to_json()


def _answered(document: Any) -> Any:
    if "stopped" in document:
        return {"stopped": blocked_to_json(blocked_from_json(document["stopped"]))}
    return _by(AttemptOutcome)(document)


def _parts(**rewrites: Rewrite) -> Rewrite:
    """Return what rewrites the named members of a document; those that are null or missing stay so."""

    def rewrite(document: Any) -> Any:
        return {name: rewrites[name](value) for name, value in document.items() if value and name in rewrites}

    return rewrite


def _each(rewrite: Rewrite) -> Rewrite:
    return lambda documents: [rewrite(document) for document in documents]


_OPERATION: Final = _parts(operation=_by(OperationInput))
_FILTER: Final = _parts(filter=_by(DeadLetterFilter))
_DELIVERY: Final = _parts(delivery=_by(Delivery), place=_by(OutboxLocation))
_BULK: Final = _parts(filter=_by(DeadLetterFilter), progress=_by(ReplayProgress))


def _continued(document: Any) -> Any:
    return _OPERATION(document) | (_by(RetryState)(document) if "history" in document else {})


REWRITES: Final[dict[str, Rewrite]] = {
    "state of idempotency_record": _by(KeyRecord),
    "state of circuit_breaker": lambda state: breaker_to_json(breaker_from_json(state)),
    "state of call_limiter": _by(Limiter),
    "state of order_lane": _by(Lane),
    **{f"input of {name}": _by(LaneMessage) for name in ("join", "take", "leave", "drop", "release")},
    "answer of take": _by(Turn),
    "state of debounce": _by(Series),
    "input of arrive": _by(DebounceRequest),
    "input of begin": _by(DebounceRequest),
    "input of withdraw": _by(DebounceRequest),
    "input of forget": _by(DebounceRequest),
    "event replaced": _by(DebounceRequest),
    "input of report": _by(ReportMessage),
    "input of permit": _by(PermitMessage),
    "input of hand": _by(ManualControlMessage),
    "input of acquire": _by(SlotRequest),
    "answer of permit": lambda answer: answer_to_json(answer_from_json(answer)),
    "answer of acquire": lambda answer: slot_answer_to_json(slot_answer_from_json(answer)),
    "event operation_ended": _by(Completion),
    "input of operation": _continued,
    "input of claim": _by(ClaimRequest),
    "answer of claim": _by(ClaimReply),
    "input of complete": _by(KeyCompletion),
    "input of attempt": _by(AttemptCall),
    "input of commit": _by(Success),
    "answer of commit": _by(Committed),
    "answer of attempt": _answered,
    "input of dead_letter": _OPERATION,
    "input of outbox": _parts(deliveries=_each(_by(Delivery)), place=_by(OutboxLocation)),
    "answer of outbox_pending": _parts(deliveries=_each(_by(Delivery)), place=_by(OutboxLocation)),
    "input of publish": _DELIVERY,
    "answer of publish": _answered,
    "input of outbox_give_up": _DELIVERY,
    "input of batch": _parts(progress=_by(BatchProgress)),
    "input of saga": _parts(saga=_by(Saga)),
    "input of submit": _OPERATION,
    "answer of submit": _parts(ending=_by(Completion)),
    "input of replay": _BULK,
    "input of bulk_action": _BULK,
    "input of replay_page": _FILTER,
    "input of release_waiting": _parts(hand=_by(ManualControlMessage)),
}
"""How each message that holds stored classes is read and written again; the others are plain members."""


def recorded_messages() -> Iterator[tuple[str, str, Any]]:
    """Give every message in the recorded histories: the history, what it is, the document."""
    for shape in shapes():
        names: dict[int | str, str] = {}
        for event in recording(shape).events:
            message = _message(event, names)
            if message is not None and message[1]:
                yield shape, message[0], json.loads(message[1])


_SENT: Final = {
    "executionStarted": ("input of {}", "name", "input"),
    "taskScheduled": ("input of {}", "name", "input"),
    "entityOperationCalled": ("input of {}", "operation", "input"),
    "entityOperationSignaled": ("input of {}", "operation", "input"),
    "eventRaised": ("event {}", "name", "input"),
}
"""Where a history's events have what was sent: its title, the field of its name, the field of its JSON."""

_ANSWERED: Final = {
    "taskCompleted": ("taskScheduledId", "result"),
    "entityOperationCompleted": ("requestId", "output"),
}
"""Where they have what was answered: the field of what it answers, the field of its JSON."""


def _message(event: pb.HistoryEvent, names: dict[int | str, str]) -> tuple[str, str] | None:
    kind = event.WhichOneof("eventType") or ""
    content = getattr(event, kind)
    if kind in _SENT:
        title, name, text = _SENT[kind]
        names[getattr(content, "requestId", event.eventId)] = getattr(content, name)
        return title.format(getattr(content, name)), getattr(content, text).value
    if kind in _ANSWERED:
        asked, text = _ANSWERED[kind]
        return f"answer of {names[getattr(content, asked)]}", getattr(content, text).value
    return None
