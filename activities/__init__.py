"""Durable activities, thin and in few modules, and the app's own handlers.

A module is imported when the first of its activities is called, so that the app starts soon.
"""

from itertools import chain
from typing import Final

import azure.durable_functions as df

from durable_retry.base import names
from durable_retry.hub.binding import add_activity
from durable_retry.plugins import Activities, plugins

ACTIVITIES: Final = (
    Activities(module="operation", with_hub=(names.ATTEMPT,), without_hub=(names.COMMIT, names.DEAD_LETTER)),
)
"""The core's; the name of an activity is that of its function."""


def blueprints() -> list[df.Blueprint]:
    """Return the blueprint of each module, to register in the function app."""
    return [_blueprint(group) for group in chain(ACTIVITIES, *(plugin.activities for plugin in plugins()))]


def _blueprint(activities: Activities) -> df.Blueprint:
    blueprint = df.Blueprint()
    for name in activities.names:
        reference = f"{__name__}.{activities.module}:{name}"
        add_activity(blueprint, reference, with_hub=name in activities.with_hub)
    return blueprint
