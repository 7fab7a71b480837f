"""Every way in: HTTP routes, sources of messages, timers."""

import azure.durable_functions as df

from durable_retry.triggers import timers
from durable_retry.triggers.sources.blueprints import source_blueprints


def blueprints() -> list[df.Blueprint]:
    """Return the blueprint of the timers, and of each source whose app settings are present."""
    return [timers.blueprint, *source_blueprints()]
