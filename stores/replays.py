"""Bulk replays in the task hub: one orchestration each."""

import json
import re
import uuid
from datetime import datetime
from typing import Any, Final

import grpc
from durabletask.client import OrchestrationState, OrchestrationStatus

from engine.bulk_replay import Progress, ReplayState, progress_document
from engine.dead_letter_filter import Filter
from engine.instants import to_rfc3339
from stores.instances import start
from stores.task_hub import TaskHubUnavailableError, client_for

REPLAY: Final = "replay"
"""Name of the orchestration."""

REPLAY_PAGE: Final = "replay_page"
REPLAY_BATCH: Final = "replay_batch"
"""Names of its activities."""

CANCEL_REPLAY_EVENT: Final = "cancel_replay"

_ID: Final = re.compile(r"replay-[0-9a-f]{32}")

_ENDED_WITHOUT_OUTPUT: Final = {
    OrchestrationStatus.FAILED: ReplayState.FAILED,
    OrchestrationStatus.TERMINATED: ReplayState.CANCELLED,
}


async def start_bulk_replay(
    hub: str, wanted: Filter, *, rate_per_second: float, matched: int, note: str | None, now: datetime
) -> str:
    """Start a bulk replay and return its id.

    Raises:
        TaskHubUnavailableError: It could not be started.
    """
    replay_id = f"replay-{uuid.uuid4().hex}"
    given = {
        "replay_id": replay_id,
        "filter": wanted.to_json(),
        "rate_per_second": rate_per_second,
        "matched": matched,
        "note": note,
        "created_at": to_rfc3339(now),
    }
    await start(hub, REPLAY, replay_id, given, again=False)
    return replay_id


async def find_bulk_replay(hub: str, replay_id: str) -> dict[str, Any] | None:
    """Return how far a bulk replay got; None when there is none of this id, or its history was purged.

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
    given = json.loads(state.serialized_input or "{}")
    ended = _ENDED_WITHOUT_OUTPUT.get(state.runtime_status, ReplayState.PENDING)
    return progress_document(given, ended, Progress())
