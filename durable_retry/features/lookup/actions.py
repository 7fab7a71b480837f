"""Asks whether an operation with an unknown end happened, for a person: by a replay that makes no attempt."""

from dataclasses import replace
from datetime import datetime
from typing import Final

from durable_retry.base.errors import WrongOperationStateError
from durable_retry.dead_letters.records import existing_dead_letter
from durable_retry.features.lookup.names import LOOKUP
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations.actions import find_operation
from durable_retry.plugins import hook
from durable_retry.rules.dead_letters.document import StartedReplay
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.runtime import clock
from durable_retry.runtime.deferred import imported

_IS_KNOWN: Final = "the operation is no dead letter of which nobody knows whether it happened"


async def ask_whether_it_happened(hub: TaskHub, operation_id: str, by: str | None) -> StartedReplay:
    """Ask about the dead letter of an operation, as `ask_about` does."""
    letter = (await find_operation(hub, operation_id)).dead_letter
    if letter is None or letter.id is None:
        raise WrongOperationStateError(_IS_KNOWN)
    return await ask_about(hub, letter.id, None, clock.now(), by=by)


async def ask_about(
    hub: TaskHub,
    dead_letter_id: str,
    note: str | None,
    now: datetime,
    *,
    action_id: str | None = None,
    by: str | None = None,
) -> StartedReplay:
    """Start a replay of a dead letter that asks and makes no attempt.

    Args:
        action_id: The bulk action that this is part of; None for a single one.

    Raises:
        WrongOperationStateError: Its end is known, or neither its dependency nor the app can ask.
        WrongStatusError: The dead letter is replayed or archived.
    """
    # `replay_unedited` refuses one that is replayed or archived.
    record = await existing_dead_letter(dead_letter_id)
    if not record.is_unclear:
        raise WrongOperationStateError(_IS_KNOWN)
    if not (module := hook("replay")):
        raise WrongOperationStateError("this app lacks the feature replay, by which it would ask")
    replay = imported(f"{module}:replay_unedited")
    started: StartedReplay = await replay(
        hub, dead_letter_id, note, now, action_id=action_id, by=by, change=_only_asking
    )
    return started


def _only_asking(operation: OperationInput) -> OperationInput:
    parts = dict(operation.parts or {})
    if LOOKUP not in parts:
        raise WrongOperationStateError(f"the dependency {operation.dependency} has no lookup")
    return replace(operation, parts=parts | {LOOKUP: {**parts[LOOKUP], "only_asks": True}})
