"""Ask for a person whether an operation happened whose end is unknown: by a replay that sends nothing."""

from dataclasses import replace
from datetime import datetime
from typing import Final

from durable_retry.base.errors import WrongOperationStateError
from durable_retry.dead_letters.records import existing_dead_letter
from durable_retry.features.lookup.names import LOOKUP
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations.actions import find_operation
from durable_retry.replay.actions import replay_dead_letter
from durable_retry.rules.dead_letters.document import StartedReplay
from durable_retry.rules.dead_letters.replay import ReplayBody
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.runtime import clock

_IS_KNOWN: Final = "the operation is no dead letter of which nobody knows whether it happened"


async def ask_whether_it_happened(hub: TaskHub, operation_id: str, by: str | None) -> StartedReplay:
    """As `ask_about`, of the dead letter that the operation is."""
    letter = (await find_operation(hub, operation_id)).dead_letter
    if letter is None or letter.id is None:
        raise WrongOperationStateError(_IS_KNOWN)
    return await ask_about(hub, letter.id, ReplayBody(), clock.now(), by=by)


async def ask_about(
    hub: TaskHub,
    dead_letter_id: str,
    noted: ReplayBody,
    now: datetime,
    *,
    action_id: str | None = None,
    by: str | None = None,
) -> StartedReplay:
    """Start a replay of a dead letter that asks and makes no attempt.

    Args:
        noted: Nothing but a note.
        action_id: The bulk action that this is part of; None for a single one.

    Raises:
        WrongOperationStateError: Its end is known, or its dependency cannot be asked.
        WrongStatusError: The dead letter is replayed or archived.
    """
    # What is replayed or archived is refused for that.
    record = await existing_dead_letter(dead_letter_id)
    if not record.is_unclear:
        raise WrongOperationStateError(_IS_KNOWN)
    return await replay_dead_letter(
        hub, dead_letter_id, noted, now, action_id=action_id, by=by, change=_only_asking
    )


def _only_asking(operation: OperationInput) -> OperationInput:
    parts = dict(operation.parts or {})
    if LOOKUP not in parts:
        raise WrongOperationStateError(f"the dependency {operation.dependency} has no lookup")
    return replace(operation, parts=parts | {LOOKUP: {**parts[LOOKUP], "only_asks": True}})
