"""Start each operation once, and name what nothing else names.

naming = caller_naming(key=key)
operation = read_operation(parse_envelope(document), naming, targets(), source="http", now=clock.now())
result = await submit(hub, operation)
"""

import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from durable_retry.engine.base.errors import TaskHubUnavailableError
from durable_retry.engine.base.json_forms import UnreadableRecordError
from durable_retry.engine.base.names import OPERATIONS_QUEUE, QUEUE_SOURCE
from durable_retry.engine.base.validation import InvalidInputError, Problem
from durable_retry.engine.facts import StartUnanswered, SubmissionOutcome, Submitted
from durable_retry.engine.operations.completion import written_operation
from durable_retry.engine.operations.keys import (
    FIELDS_SCOPE,
    ScopedKey,
    envelope_scope,
    explicit_scope,
    is_live,
    operation_id_for,
    source_scope,
)
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.operations.status import is_finished
from durable_retry.engine.operations.submission import Naming
from durable_retry.services.order_lanes import with_place
from durable_retry.settings.sources import TIMER, intake_settings
from durable_retry.stores.instances import Instance
from durable_retry.stores.operations.entities import read_record
from durable_retry.stores.operations.status import document_of
from durable_retry.stores.order_lanes import join_lane
from durable_retry.stores.task_hub import TaskHub
from durable_retry.telemetry import spans
from durable_retry.telemetry.facts import report
from durable_retry.telemetry.spans import OUTCOME


def caller_naming(tenant: str = "", key: str | None = None) -> Naming:
    """Return what names the submission of a caller: the key, or one that is generated here."""
    own = ScopedKey(explicit_scope(tenant), f"gen-{uuid.uuid4()}")
    return Naming(own=own, is_new=True, tenant=tenant, key=key)


@dataclass(frozen=True, slots=True)
class Started:
    """The operation is new and durable now."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The same operation was submitted before; `finished` says whether its document is the last one."""

    document: dict[str, Any]
    finished: bool


@dataclass(frozen=True, slots=True)
class KeyReused:
    """The key belongs to an operation with another fingerprint; nothing was started."""


type SubmitResult = Started | Replayed | KeyReused

_OUTCOMES: Final = {
    Started: SubmissionOutcome.STARTED,
    Replayed: SubmissionOutcome.REPLAYED,
    KeyReused: SubmissionOutcome.KEY_REUSED,
}


async def submit(hub: TaskHub, operation: OperationInput) -> SubmitResult:
    """Start an operation unless its key was used before.

    The instance is the record of the key: a start never replaces one, whatever has become of it, and what is
    there answers. A record answers only where the history is gone. It is read before the start, since nothing
    refuses that then: the caller would get 202 for what is finished (200 with its document) or is another
    operation (422). A key that was generated just now needs no look.

    Raises:
        TaskHubUnavailableError: It is not known to be started; submitting again is safe.
        InvalidInputError: Nobody can read the record of its key, and its history is gone.
    """
    with spans.submission(operation) as (span, traced):
        result = await _start_operation_once(hub, traced)
        outcome = _OUTCOMES[type(result)]
        span.set_attribute(OUTCOME, outcome.value)
        report(Submitted(operation, outcome))
    return result


async def _start_operation_once(hub: TaskHub, operation: OperationInput) -> SubmitResult:
    is_new_key = operation.key_is_generated is True
    if not is_new_key and (answer := await _answer_to_known_key(hub, operation)) is not None:
        return answer
    start_id = uuid.uuid4().hex
    lane = operation.lane_at_start
    try:
        placed = operation if lane is None else await with_place(hub, operation, lane)
        result = await _start_run(hub, placed, start_id)
    except TaskHubUnavailableError:
        # The caller asks again, and is told then that it runs. A generated key is another then.
        if not is_new_key:
            report(StartUnanswered(operation))
        raise
    if lane is not None and isinstance(result, Started):
        # A join that is lost is made up for by whoever comes next in the order.
        with suppress(TaskHubUnavailableError):
            await join_lane(hub, placed)
    return result


async def _start_run(hub: TaskHub, operation: OperationInput, start_id: str) -> SubmitResult:
    is_started = await hub.start_operation(operation, start_id)
    if is_started and (operation.key_is_generated or hub.starts_are_atomic):
        return Started()
    # Elsewhere another first start of the key may have been answered with success, too. The instance's row is
    # the one that was written first: only that operation runs, and the other start's message is dropped.
    instance = await hub.read_instance(operation.operation_id)
    if instance is None:
        raise TaskHubUnavailableError("the task hub has the operation and does not show it")
    # An instance that has continued as new does not carry the id of its start any more.
    is_ours = is_started and instance.input.get("start_id", start_id) == start_id
    return Started() if is_ours else _answer_of_instance(instance, operation)


def _answer_of_instance(instance: Instance, operation: OperationInput) -> SubmitResult:
    if written_operation(instance.input).get("fingerprint") != operation.fingerprint:
        return KeyReused()
    document = document_of(instance)
    return Replayed(document, is_finished(document))


async def _answer_to_known_key(hub: TaskHub, operation: OperationInput) -> SubmitResult | None:
    """Answer from the instance, or from the record, of a key that has a record; None of one that has none."""
    try:
        record = await read_record(hub, operation.operation_id)
    except UnreadableRecordError as error:
        # Whether the key was used, and for what, is not known.
        instance = await hub.read_instance(operation.operation_id)
        if instance is None:
            raise InvalidInputError([Problem("/key", f"its record cannot be read: {error}")]) from error
        return _answer_of_instance(instance, operation)
    if record is None or not is_live(record, operation.created_at):
        return None
    instance = await hub.read_instance(operation.operation_id)
    if instance is not None:
        return _answer_of_instance(instance, operation)
    if not record.stands_for(operation.fingerprint):
        return KeyReused()
    return Replayed(dict(record.document), finished=True)


_KAFKA: Final = "kafka"
_WITHOUT_PLACE: Final = (TIMER, "event_grid")
# Sources of our own (`services.workflows`, `services.calls`): their scopes have no place at all.
_OWN_SOURCES: Final = ("batch", "saga", "call")


def named_ids(name: str, tenant: str) -> list[str]:
    """Return the ids that an operation of this key can have, and the name itself, which may be an id."""
    places = dict(intake_settings().places)
    if _KAFKA in places:  # The scope of a message is its topic alone.
        places[_KAFKA] = places[_KAFKA].rpartition("/")[2]
    places |= {QUEUE_SOURCE: OPERATIONS_QUEUE, **dict.fromkeys(_WITHOUT_PLACE, "")}
    scopes = [scope_of(who) for scope_of in (explicit_scope, envelope_scope) for who in (tenant, "")]
    scopes += [FIELDS_SCOPE, *(f"source:{source}" for source in _OWN_SOURCES)]
    scopes += [source_scope(source, place) for source, place in places.items()]
    return [name, *(operation_id_for(scope, name) for scope in dict.fromkeys(scopes))]
