"""Durable activities, one thin module per orchestration that calls them, and the app's own handlers.

A module is imported when the first of its activities is called, so that the app starts soon.
"""

from collections.abc import Mapping
from typing import Any, Final

import azure.durable_functions as df

from durable_retry.deferred import deferred
from durable_retry.engine.base import names
from durable_retry.runtime.binding import TaskHub, bind_hub

ACTIVITIES: Final[Mapping[str, tuple[str, ...]]] = {
    "bulk": (
        names.REPLAY_PAGE,
        names.REPLAY_BATCH,
        names.BULK_PAGE,
        names.BULK_BATCH,
        names.BULK_ENDS,
    ),
    "diagnosis": (names.DIAGNOSE,),
    "operation": (names.ATTEMPT, names.COMMIT, names.DEAD_LETTER),
    "order_lane": (names.LOOK_AT_LANE,),
    "outbox": (names.OUTBOX_PENDING, names.PUBLISH, names.OUTBOX_GIVE_UP),
    "upkeep": (names.REMOVE_PAST,),
    "wake_waiting": (names.WAKE_WAITING,),
    "workflows": (
        names.SUBMIT,
        names.BATCH_STEP,
        names.BATCH_CLOSE,
        names.BEGIN_RESTART,
        names.END_RESTART,
        names.START_CALL,
        names.LOOK_AT_CALL,
    ),
}
"""The activities of each module: the name of an activity is that of its function."""

_WITHOUT_HUB: Final = frozenset(
    {
        names.REPLAY_PAGE,
        names.DIAGNOSE,
        names.COMMIT,
        names.DEAD_LETTER,
        names.OUTBOX_PENDING,
        names.OUTBOX_GIVE_UP,
        names.BATCH_CLOSE,
        names.BEGIN_RESTART,
        names.END_RESTART,
    }
)
"""The others take the task hub beside their input."""


def blueprints() -> dict[str, df.Blueprint]:
    """Return the blueprint of each module by its name, to register in the function app."""
    return {module: _blueprint(module, activities) for module, activities in ACTIVITIES.items()}


def _blueprint(module: str, activities: tuple[str, ...]) -> df.Blueprint:
    blueprint = df.Blueprint()
    for name in activities:
        function = _imported_when_called(f"{__name__}.{module}:{name}")
        function.__name__ = name
        bound = function if name in _WITHOUT_HUB else bind_hub(blueprint)(function)
        blueprint.activity_trigger(input_name="given", activity=name)(bound)
    return blueprint


def _imported_when_called(reference: str) -> Any:
    run = deferred(reference)

    async def activity(given: dict) -> object:  # type: ignore[type-arg] # the worker refuses parameterised annotations
        return await run(given)

    async def activity_with_hub(given: dict, hub: TaskHub) -> object:  # type: ignore[type-arg] # as above
        return await run(given, hub)

    return activity if reference.rpartition(":")[2] in _WITHOUT_HUB else activity_with_hub
