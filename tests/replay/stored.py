"""What is stored, or sent between functions: its classes, samples, and what recorded histories hold."""

import importlib
import json
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from types import ModuleType, NoneType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeAliasType,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from durabletask.internal import orchestrator_service_pb2 as pb

import durable_retry
import durable_retry_console
from durable_retry.attempt.commits import CommitLocation as OutboxLocation
from durable_retry.base.json_forms import union_from_json
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter
from durable_retry.features.freeze.rules import Release, Seen, Thaw
from durable_retry.features.order.rules.lane import LaneMessage, Turn
from durable_retry.features.outbox.rules.outbox import Delivery
from durable_retry.features.workflows.rules.shapes import BatchProgress, Saga
from durable_retry.rules.circuit.freeze import Freeze
from durable_retry.rules.circuit.messages import PermitAnswer, PermitMessage
from durable_retry.rules.circuit.transitions import ManualAction
from durable_retry.rules.operations.completion import Committed, Completion, Success
from durable_retry.rules.operations.keys import KeyCompletion
from durable_retry.rules.operations.operation import AttemptCall, OperationInput
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.rules.retry.loop import Blocked, RetryState
from durable_retry_console.bulk.shapes import BatchInput, BatchResult, BulkInput
from tests.replay.recording import load as recording
from tests.replay.recording import shapes
from tests.support.builders import NOON

_PACKAGES: Final = (durable_retry, durable_retry_console)
_BASES: Final = ("JsonShape", "JsonRow")


def stored_classes() -> dict[str, type[Any]]:
    """Return the classes of the library that are written as JSON and read back, by name."""
    found: dict[str, type[Any]] = {}
    for module in (module for package in _PACKAGES for module in _modules(package)):
        for name, value in vars(module).items():
            is_own = isinstance(value, type) and value.__module__ == module.__name__
            if is_own and hasattr(value, "to_json") and hasattr(value, "from_json") and name not in _BASES:
                assert name not in found, f"two stored classes are called {name}"
                found[name] = value
    return found


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        yield importlib.import_module(each.name)


def is_needed(cls: type[Any], document: Mapping[str, Any], member: str) -> bool:
    """Whether a document cannot be read without a member."""
    try:
        cls.from_json({name: value for name, value in document.items() if name != member})
    except (LookupError, ValueError):
        return True
    return False


def sample(cls: type[Any], *, is_full: bool = True) -> Any:
    """Return an instance with a value in every field, or only in those that have no default."""
    hints = get_type_hints(cls, include_extras=True)
    given = {
        each.name: _value(hints[each.name], each.name)
        for each in fields(cls)
        if is_full or (each.default is each.default_factory)  # Both are MISSING.
    }
    return cls(**given)


_TEXTS: Final = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}
"""Members that are read only in a form of their own."""


def _value(hint: Any, name: str) -> Any:
    while isinstance(hint, TypeAliasType) or get_origin(hint) is Annotated:
        hint = hint.__value__ if isinstance(hint, TypeAliasType) else get_args(hint)[0]
    origin, arguments = get_origin(hint), get_args(hint)
    if NoneType in arguments:
        return _value(next(each for each in arguments if each is not NoneType), name)
    if origin is Literal:
        return arguments[-1]
    if origin is tuple:
        inner = arguments[:1] if arguments[-1] is ... else arguments
        return tuple(_value(each, name) for each in inner)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        # A counter names the type of its members only.
        return {_value(arguments[0], "member"): _value((*arguments, int)[1], name)}
    return _plain(hint, name)


def _plain(hint: Any, name: str) -> Any:
    if is_typeddict(hint):
        return {"member": _value(Any, name)}
    if hint is Any:
        return {"text": "é", "list": [1, 1.0, None, True]}
    if isinstance(hint, type) and is_dataclass(hint):
        return sample(hint)
    if issubclass(hint, Enum):
        return next(iter(hint))
    known = {
        str: _TEXTS.get(name, name),
        int: 7,
        float: 1.5,
        bool: True,
        datetime: NOON + timedelta(milliseconds=250),
    }
    return known[hint]


type Rewrite = Callable[[Any], Any]
"""Reads a document and writes it again."""


def _by(cls: Any) -> Rewrite:
    return lambda document: cls.from_json(document).to_json()


def _answered(document: Any) -> Any:
    if "stopped" in document:
        return {"stopped": union_from_json(Blocked, document["stopped"]).to_json()}
    return _by(AttemptOutcome)(document)


def _parts(**rewrites: Rewrite) -> Rewrite:
    """Return what rewrites the named members of a document; those that are null or missing stay so."""

    def rewrite(document: Any) -> Any:
        return {name: rewrites[name](value) for name, value in document.items() if value and name in rewrites}

    return rewrite


def _each(rewrite: Rewrite) -> Rewrite:
    return lambda documents: [rewrite(document) for document in documents]


_OPERATION: Final = _parts(operation=_by(OperationInput))
_FREEZE: Final = _parts(freeze=_by(Freeze), thaw=_by(Thaw), release=_by(Release))
_DELIVERY: Final = _parts(delivery=_by(Delivery), place=_by(OutboxLocation))


def _continued(document: Any) -> Any:
    return _OPERATION(document) | (_by(RetryState)(document) if "history" in document else {})


REWRITES: Final[dict[str, Rewrite]] = {
    **{f"input of {name}": _by(LaneMessage) for name in ("take", "leave")},
    "answer of take": _by(Turn),
    "input of permit": _by(PermitMessage),
    "input of hand": _by(ManualAction),
    "answer of permit": lambda answer: union_from_json(PermitAnswer, answer).to_json(),
    "event operation_ended": _by(Completion),
    "input of operation": _continued,
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
    "input of bulk_action": _by(BulkInput),
    "input of bulk_page": _parts(filter=_by(DeadLetterFilter)),
    "input of bulk_batch": _by(BatchInput),
    "answer of bulk_batch": _by(BatchResult),
    "input of release_waiting": _parts(hand=_by(ManualAction)),
    "input of freeze": _FREEZE,
    "input of keep_frozen": _FREEZE,
    "answer of keep_frozen": _by(Seen),
}
"""How each message that holds stored classes is read and written again; the others are plain members."""


def recorded_messages() -> Iterator[tuple[str, str, Any]]:
    """Give every message in the recorded histories: the history, what it is, the document."""
    for shape in shapes():
        names: dict[int | str, str] = {}
        for event in recording(shape).history.events:
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
