"""Bulk replays: one orchestration each."""

import json
import re
import uuid
from datetime import datetime
from typing import Any, Final

import grpc
from durabletask.client import OrchestrationState, OrchestrationStatus

from durable_retry.engine.base.json_forms import to_rfc3339
from durable_retry.engine.base.names import REPLAY
from durable_retry.engine.dead_letters.replay import (
    DeadLetterFilter,
    ReplayProgress,
    ReplayState,
    progress_document,
)
from durable_retry.stores import workflows
from durable_retry.stores.task_hub import TaskHubUnavailableError, client_for, start_instance
from durable_retry.stores.workflows import note_created

_ID: Final = re.compile(r"replay-[0-9a-f]{32}")

_ENDED_WITHOUT_OUTPUT: Final = {
    OrchestrationStatus.FAILED: ReplayState.FAILED,
    OrchestrationStatus.TERMINATED: ReplayState.CANCELLED,
}


async def start_bulk_replay(
    hub: str,
    wanted: DeadLetterFilter,
    *,
    rate_per_second: float,
    matched: int,
    note: str | None,
    now: datetime,
) -> str:
    """Start a bulk replay and return its id.

    Raises:
        TaskHubUnavailableError: It could not be started.
    """
    replay_id = f"replay-{uuid.uuid4().hex}"
    input_ = {
        "replay_id": replay_id,
        "filter": wanted.to_json(),
        "rate_per_second": rate_per_second,
        "matched": matched,
        "note": note,
        "created_at": to_rfc3339(now),
    }
    await note_created(workflows.REPLAY, replay_id, to_rfc3339(now))
    await start_instance(hub, REPLAY, replay_id, input_, again=False)
    return replay_id


async def find_bulk_replay(hub: str, replay_id: str) -> dict[str, Any] | None:
    """Return a bulk replay's document; None when no instance of this id exists (never started, or purged).

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    if not _ID.fullmatch(replay_id):
        return None
    client = await client_for(hub)
    try:
        state = await client.get_orchestration_state(replay_id)
    except grpc.aio.AioRpcError as error:
        raise TaskHubUnavailableError(f"the task hub answered {error.code().name}") from error
    return None if state is None else _document(state)


def _document(state: OrchestrationState) -> dict[str, Any]:
    for text in (state.serialized_output, state.serialized_custom_status):
        if text and isinstance(document := json.loads(text), dict):
            ended = _ENDED_WITHOUT_OUTPUT.get(state.runtime_status)
            return document if ended is None else document | {"status": ended.value}
    input_ = json.loads(state.serialized_input or "{}")
    ended = _ENDED_WITHOUT_OUTPUT.get(state.runtime_status, ReplayState.PENDING)
    return progress_document(input_, ended, ReplayProgress())
