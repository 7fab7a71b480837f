"""Taking an operation over: started once for its key, whatever arrives how often."""

from dataclasses import dataclass
from typing import Any, Final

from engine.idempotency import RecordState, state_of
from engine.operation import OperationInput
from stores import clock
from stores.status import document_of, operation_of
from stores.status_document import is_finished
from stores.task_hub import TaskHubUnavailableError, read_operation, read_record, start_operation
from telemetry import happenings, spans
from telemetry.attributes import OUTCOME


@dataclass(frozen=True, slots=True)
class Started:
    """The operation is new and durable now."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The same operation was submitted before; nothing was started.

    Attributes:
        document: Its status document.
        finished: Whether that is the last one.
    """

    document: dict[str, Any]
    finished: bool


@dataclass(frozen=True, slots=True)
class KeyReused:
    """The key belongs to an operation with another fingerprint; nothing was started."""


type Submission = Started | Replayed | KeyReused

_OUTCOMES: Final = {Started: "started", Replayed: "replayed", KeyReused: "key_reused"}
"""Their names in metrics."""


async def submit(hub: str, operation: OperationInput, *, is_new_key: bool = False) -> Submission:
    """Start an operation unless its key was used before.

    The order closes every gap but one: between the look at the record and the start, a finished instance can
    vanish (a purge), and then the orchestration's own claim finds the record and does nothing.

    Args:
        hub: Configuration of the durable client.
        operation: The resolved operation.
        is_new_key: Whether the key was generated just now, so that no record can exist.

    Raises:
        TaskHubUnavailableError: It was not taken over; submitting again is safe.
    """
    with spans.submission(operation) as (span, traced):
        submission = await _submit(hub, traced, is_new_key=is_new_key)
        outcome = _OUTCOMES[type(submission)]
        span.set_attribute(OUTCOME, outcome)
        happenings.submitted(operation, outcome)
    return submission


async def _submit(hub: str, operation: OperationInput, *, is_new_key: bool) -> Submission:
    if not is_new_key and (known := await _from_record(hub, operation)) is not None:
        return known
    if await start_operation(hub, operation):
        return Started()
    instance = await read_operation(hub, operation.operation_id)
    if instance is None:
        raise TaskHubUnavailableError("the task hub knows the operation and does not show it")
    if operation_of(instance).fingerprint != operation.fingerprint:
        return KeyReused()
    document = document_of(instance)
    return Replayed(document, is_finished(document))


async def _from_record(hub: str, operation: OperationInput) -> Submission | None:
    """Answer from the record of the key; None when it holds no end yet (or the key is new)."""
    record = await read_record(hub, operation.operation_id)
    if record is None or state_of(record, clock.now()) is RecordState.ABSENT:
        return None
    if record.fingerprint != operation.fingerprint:
        return KeyReused()
    return None if record.document is None else Replayed(dict(record.document), finished=True)
