"""The activities of a freeze."""

from typing import Any

from durable_retry.base.json_forms import from_rfc3339
from durable_retry.features.freeze.hold import count_waiting, spread_freeze, wake_wave
from durable_retry.features.freeze.rules import Thaw, crowds_in, crowds_to_json
from durable_retry.hub.binding import TaskHub
from durable_retry.rules.circuit.freeze import Freeze
from durable_retry.runtime import clock


async def keep_frozen(request: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Signal a freeze to the circuits that lack its latest change. Idempotent.

    Args:
        request: `freeze`; `thaw`, while one is under way; `crowds`: how many waited for each dependency
            before its wave.

    Returns:
        The JSON form of a `Seen`.
    """
    thaw = Thaw.from_json(request["thaw"]) if "thaw" in request else None
    seen = await spread_freeze(hub, Freeze.from_json(request["freeze"]), crowds_in(request), thaw)
    return seen.to_json()


async def count_frozen(request: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Count the waiting operations on the next pages of the task hub.

    Args:
        request: `freeze`; `position`: `following` of the step before, None for the first.

    Returns:
        `crowds`, and `following`, where the next step begins; None after the last.
    """
    freeze = Freeze.from_json(request["freeze"])
    crowds, following = await count_waiting(hub, freeze, clock.now(), request["position"])
    return {"crowds": crowds_to_json(crowds), "following": following}


async def wake_frozen(request: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Wake the operations of a wave on the next pages of the task hub; waking one twice is harmless.

    Args:
        request: `freeze`, `crowds`; `changed_at`: since when every worker sees the wave; `position` as in
            `count_frozen`.

    Returns:
        `woken`, the number of instances, and `following` as in `count_frozen`.
    """
    freeze, changed_at = Freeze.from_json(request["freeze"]), from_rfc3339(request["changed_at"])
    woken, following = await wake_wave(hub, freeze, crowds_in(request), changed_at, request["position"])
    return {"woken": woken, "following": following}
