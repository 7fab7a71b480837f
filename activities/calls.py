"""The activities of calls: starting an operation, and looking how it ended."""

from typing import Any

from durable_retry.base.json_forms import from_rfc3339
from durable_retry.features.in_process.start import PendingCall, begin_call, look_at
from durable_retry.hub.binding import TaskHub
from durable_retry.runtime import clock


async def start_call(request: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Start the operation of a call. Idempotent.

    Args:
        request: `document`, the body of an operation; `instance`: whose call it is; `since`: when that
            instance's caller began; `key`: for a document without one.

    Returns:
        `operation_id`; or `problems`: why it can never start, pointer and detail of each; or `is_taken`:
        another call has this key.
    """
    call = PendingCall(request["instance"], from_rfc3339(request["since"]), request["key"])
    return await begin_call(hub, request["document"], call, clock.now())


async def look_at_call(request: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Look how the operation of a call ended.

    Args:
        request: `operation_id`.

    Returns:
        `document`: its status document, None while it runs; or `problems`, when nothing is left of it.
    """
    return await look_at(hub, request["operation_id"])
