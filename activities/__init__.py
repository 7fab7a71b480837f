"""Durable activities, thin and in few modules, and the app's own handlers.

A module is imported when the first of its activities is called, so that the app starts soon.
"""

from collections.abc import Mapping
from typing import Final

import azure.durable_functions as df

from durable_retry.engine.base import names
from durable_retry.runtime.binding import add_activity

ACTIVITIES: Final[Mapping[str, tuple[str, ...]]] = {
    "operation": (names.ATTEMPT, names.COMMIT, names.DEAD_LETTER),
    "outbox": (names.OUTBOX_PENDING, names.PUBLISH, names.OUTBOX_GIVE_UP),
    "upkeep": (
        *(names.REMOVE_PAST, names.LOOK_AT_LANE, names.WAKE_WAITING, names.DIAGNOSE, names.PASS_QUEUE),
    ),
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
        names.DIAGNOSE,
        names.PASS_QUEUE,
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


def blueprints() -> list[df.Blueprint]:
    """Return the blueprint of each module, to register in the function app."""
    return [_blueprint(module, activities) for module, activities in ACTIVITIES.items()]


def _blueprint(module: str, activities: tuple[str, ...]) -> df.Blueprint:
    blueprint = df.Blueprint()
    for name in activities:
        add_activity(blueprint, f"{__name__}.{module}:{name}", with_hub=name not in _WITHOUT_HUB)
    return blueprint
