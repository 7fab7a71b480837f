"""The activity of a lookup."""

from typing import Any

from durable_retry.features.lookup.asking import ask_dependency
from durable_retry.features.lookup.rules import LookupCall
from durable_retry.hub.binding import TaskHub
from durable_retry.rules.retry.history import AttemptOutcome


async def look_up(asked: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Ask a dependency whether an attempt happened whose end is unknown.

    Args:
        asked: The JSON form of a `LookupCall`.

    Returns:
        As the activity `attempt`; the result of a success is the JSON form of an `Answer`.
    """
    answer = await ask_dependency(hub, LookupCall.from_json(asked))
    return answer.to_json() if isinstance(answer, AttemptOutcome) else {"stopped": answer.to_json()}
