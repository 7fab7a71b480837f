"""The activity of a poll."""

from typing import Any

from durable_retry.features.polling.asking import poll_once
from durable_retry.features.polling.rules import PollCall
from durable_retry.hub.binding import TaskHub


async def poll(asked: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Ask a dependency how far the work behind an accepted request is.

    Args:
        asked: The JSON form of a `PollCall`.

    Returns:
        The JSON form of what was `Polled`.
    """
    return (await poll_once(hub, PollCall.from_json(asked))).to_json()
