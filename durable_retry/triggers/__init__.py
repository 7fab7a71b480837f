"""Every way in: HTTP routes, event sources, timers."""

import azure.durable_functions as df

from durable_retry.triggers import timers
from durable_retry.triggers.events.sources import source_blueprints
from durable_retry.triggers.http import api


def blueprints() -> list[df.Blueprint]:
    """Return the blueprint of each route and timer, and of each source whose app settings are present."""
    http = [routes.blueprint for routes in api.ALL]
    return [*http, timers.blueprint, *source_blueprints()]
