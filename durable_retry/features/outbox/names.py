"""Names of durable functions that histories see: never rename one."""

from typing import Final

OUTBOX: Final = "outbox"
"""Orchestrator."""

OUTBOX_PENDING: Final = "outbox_pending"
PUBLISH: Final = "publish"
OUTBOX_GIVE_UP: Final = "outbox_give_up"
"""Activities."""


def outbox_instance(outbox_id: str) -> str:
    """Return the id of the instance that sends the events of one run, by `OperationInput.run_id`."""
    return f"outbox-{outbox_id}"
