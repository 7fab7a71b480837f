"""Starting the operation that replays a dead letter: under the id, and so the key, that it has always had."""

import asyncio
from typing import Final

from engine.idempotency import RecordState, state_of
from engine.operation import OperationInput
from stores import clock
from stores.instances import start
from stores.status import operation_of
from stores.task_hub import OPERATION, read_operation, read_record
from telemetry import happenings, spans
from telemetry.attributes import OUTCOME

_WAITS_SECONDS: Final = (0.0, 0.1, 0.3, 0.9)
"""A dead letter is written before its operation ends: whoever is quick meets the last moment of that run."""


class KeyTakenError(Exception):
    """The key stands for another request by now."""


async def start_replay(hub: str, operation: OperationInput) -> bool:
    """Start the operation in place of its finished run.

    The finished run's instance gives way; the record of the key opens again for `replay_of` only when that
    run ended as a dead letter (`engine.idempotency.claim`), so nothing that succeeded is ever done again.

    Returns:
        False when another run of the operation is still going on. A run for the same dead letter counts as
        started: an earlier call got that far.

    Raises:
        KeyTakenError: See there.
        TaskHubUnavailableError: It could not be started, or nobody knows.
    """
    await _check_key(hub, operation)
    with spans.submission(operation) as (span, traced):
        is_ours = await _start_or_wait(hub, traced)
        outcome = "started" if is_ours else "replayed"
        span.set_attribute(OUTCOME, outcome)
        happenings.submitted(operation, outcome)
    return is_ours


async def _start_or_wait(hub: str, operation: OperationInput) -> bool:
    given = {"operation": operation.to_json()}
    for seconds in _WAITS_SECONDS:
        await asyncio.sleep(seconds)
        if await start(hub, OPERATION, operation.operation_id, given, again=True):
            return True
        if await is_started(hub, operation):
            return True
    return False


async def is_started(hub: str, operation: OperationInput) -> bool:
    """Tell whether the task hub's run of an operation is the one that replays the same dead letter.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    instance = await read_operation(hub, operation.operation_id)
    return instance is not None and operation_of(instance).replay_of == operation.replay_of


async def _check_key(hub: str, operation: OperationInput) -> None:
    """Leave the run of another request alone: its instance must not give way."""
    record = await read_record(hub, operation.operation_id)
    if record is None or state_of(record, clock.now()) is RecordState.ABSENT:
        return
    if record.fingerprint != operation.fingerprint:
        raise KeyTakenError(operation.operation_id)
