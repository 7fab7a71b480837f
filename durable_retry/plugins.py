"""What other distributions add to the app, such as the console: the core imports none of them by name.

A distribution has an entry point of the group `durable_retry.plugins`, which names a `Plugin`. Every app has
the plugins that are installed where it runs.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Final

import azure.durable_functions as df

from durable_retry.http.collection import Collection

GROUP: Final = "durable_retry.plugins"


@dataclass(frozen=True, slots=True)
class Plugin:
    """What a distribution adds; each part is called when the app is registered.

    Attributes:
        collections: Its routes, also more of a collection that the app has already.
        blueprints: Returns its durable functions.
        subscribe: Subscribes it to facts of the core (`telemetry.facts`), adds its steps to upkeep
            (`services.upkeep`) and its tables to what is made (`services.setup`). It may be called
            again, and has no effect then.
        begin: Begins what it does in the background.
    """

    collections: tuple[Collection, ...]
    blueprints: Callable[[], Iterable[df.Blueprint]]
    subscribe: Callable[[], None]
    begin: Callable[[], None]


@cache
def plugins() -> tuple[Plugin, ...]:
    """Return the plugins that are installed, in the order of their names; imports them."""
    return tuple(each.load() for each in sorted(entry_points(group=GROUP), key=lambda each: each.name))
