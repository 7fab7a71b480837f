"""Start each operation once, and name what nothing else names.

naming = caller_naming(key=key)
operation = read_operation(parse_envelope(document), naming, targets(), source="http", now=clock.now())
result = await submit(hub, operation, is_new_key=naming.gave_new_key(operation))
"""

import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from durable_retry.engine.base.json_forms import UnreadableRecordError
from durable_retry.engine.base.validation import InvalidInputError, Problem
from durable_retry.engine.facts import StartUnanswered, SubmissionOutcome, Submitted
from durable_retry.engine.operations.completion import written_operation
from durable_retry.engine.operations.idempotency import KeyRecordState, state_of
from durable_retry.engine.operations.naming import ScopedKey, explicit_scope
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.operations.status import is_finished
from durable_retry.engine.operations.submission import Naming
from durable_retry.errors import TaskHubUnavailableError
from durable_retry.facts import report
from durable_retry.services.order_lanes import with_place
from durable_retry.stores.operations.key_record import read_record
from durable_retry.stores.operations.status import document_of
from durable_retry.stores.order_lanes import join_lane
from durable_retry.stores.task_hub import TaskHub
from durable_retry.telemetry import spans
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


async def submit(hub: TaskHub, operation: OperationInput, *, is_new_key: bool = False) -> SubmitResult:
    """Start an operation unless its key was used before.

    The order closes every gap but one: between the look at the record and the start, a finished instance can
    vanish (a purge), and then the orchestration's own claim finds the record and does nothing.

    To start first, and to read the record only when the start is refused, would take one round trip for a new
    key. But a record may outlive the history of its operation: after a purge nothing refuses the start, and
    the caller would get 202 for what is finished (200 with its document) or is another operation (422).

    Args:
        is_new_key: Whether the key was generated just now, so that no record can exist.

    Raises:
        TaskHubUnavailableError: It is not known to be started; submitting again is safe.
        InvalidInputError: Nobody can read the record of its key.
    """
    with spans.submission(operation) as (span, traced):
        result = await _start_operation_once(hub, traced, is_new_key=is_new_key)
        outcome = _OUTCOMES[type(result)]
        span.set_attribute(OUTCOME, outcome.value)
        report(Submitted(operation, outcome))
    return result


async def _start_operation_once(hub: TaskHub, operation: OperationInput, *, is_new_key: bool) -> SubmitResult:
    if not is_new_key and (known := await _answer_from_record(hub, operation)) is not None:
        return known
    start_id = uuid.uuid4().hex
    lane = operation.lane_at_start
    try:
        placed = operation if lane is None else await with_place(hub, operation, lane)
        result = await _start_run(hub, placed, start_id, is_new_key=is_new_key)
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


async def _start_run(
    hub: TaskHub, operation: OperationInput, start_id: str, *, is_new_key: bool
) -> SubmitResult:
    is_started = await hub.start_operation(operation, start_id)
    if is_started and (is_new_key or hub.starts_are_atomic):
        return Started()
    # Elsewhere another first start of the key may have been answered with success, too. The instance's row is
    # the one that was written first: only that operation runs, and the other start's message is dropped.
    instance = await hub.read_instance(operation.operation_id)
    if instance is None:
        raise TaskHubUnavailableError("the task hub has the operation and does not show it")
    if written_operation(instance.input).get("fingerprint") != operation.fingerprint:
        return KeyReused()
    # An instance that has continued as new does not carry the id of its start any more.
    if is_started and instance.input.get("start_id", start_id) == start_id:
        return Started()
    document = document_of(instance)
    return Replayed(document, is_finished(document))


async def _answer_from_record(hub: TaskHub, operation: OperationInput) -> SubmitResult | None:
    """Answer from the record of the key; None when it holds no end yet (or the key is new)."""
    try:
        record = await read_record(hub, operation.operation_id)
    except UnreadableRecordError as error:
        # Whether the key was used, and for what, is not known.
        raise InvalidInputError([Problem("/key", f"its record cannot be read: {error}")]) from error
    # By the instant that the claim compares, too: it must not find alive what is expired here.
    if record is None or state_of(record, operation.created_at) is KeyRecordState.ABSENT:
        return None
    if record.fingerprint != operation.fingerprint:
        return KeyReused()
    return None if record.document is None else Replayed(dict(record.document), finished=True)
