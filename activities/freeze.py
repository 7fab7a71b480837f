"""The activities of a freeze."""

from typing import Any

from durable_retry.base.json_forms import from_rfc3339
from durable_retry.features.freeze.hold import count_waiting, keep_held, wake_wave
from durable_retry.features.freeze.rules import Thaw, crowds_in, to_documents
from durable_retry.hub.binding import TaskHub
from durable_retry.rules.circuit.freeze import Freeze
from durable_retry.runtime import clock


async def keep_frozen(given: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Tell the circuits that lack it what was said of a freeze. Idempotent.

    Args:
        given: `freeze`; `thaw`, while one is under way; `crowds`: who waited for which dependency before its
            wave.

    Returns:
        The JSON form of a `Seen`.
    """
    thaw = Thaw.from_json(given["thaw"]) if "thaw" in given else None
    seen = await keep_held(hub, Freeze.from_json(given["freeze"]), crowds_in(given), thaw)
    return seen.to_json()


async def count_frozen(given: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Count who waits on the next pages of the task hub.

    Args:
        given: `freeze`; `position`: `following` of the step before, None for the first.

    Returns:
        `crowds`, and `following`, where the next step begins; None after the last.
    """
    freeze = Freeze.from_json(given["freeze"])
    crowds, following = await count_waiting(hub, freeze, clock.now(), given["position"])
    return {"crowds": to_documents(crowds), "following": following}


async def wake_frozen(given: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Wake those on the next pages of the task hub that a wave lets go; waking one twice is harmless.

    Args:
        given: `freeze`, `crowds`; `changed_at`: since when every worker sees the wave; `position` as in
            `count_frozen`.

    Returns:
        `woken`, the number of instances, and `following` as in `count_frozen`.
    """
    freeze, changed_at = Freeze.from_json(given["freeze"]), from_rfc3339(given["changed_at"])
    woken, following = await wake_wave(hub, freeze, crowds_in(given), changed_at, given["position"])
    return {"woken": woken, "following": following}
