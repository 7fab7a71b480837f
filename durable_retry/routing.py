"""The collections of routes that the app has: those of the core and of its plugins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import azure.durable_functions as df

from durable_retry.http.collection import add_collection
from durable_retry.plugins import Collection, Plugin, plugins
from durable_retry.runtime.deferred import imported
from durable_retry.settings.configuration import registration

if TYPE_CHECKING:
    from durable_retry.http.routes import Route

CORE: Final = (
    Collection(
        "operations/{*rest}",
        ("durable_retry.intake.routes:routes", "durable_retry.operations.routes:routes"),
    ),
    Collection("circuits/{*rest}", ("durable_retry.circuit.routes:routes",)),
    Collection("dead-letters/{*rest}", ("durable_retry.dead_letters.routes:routes",)),
    Collection("health", ("durable_retry.upkeep.routes:routes",), anonymous=True),
)

_UNMATCHED: Final = Collection("{*rest}", (), anonymous=True)


def collections(added: Iterable[Plugin] | None = None) -> Iterator[Collection]:
    """Yield the collections of an app; a plugin may add routes to a collection of the core.

    Args:
        added: Its plugins; None means those that are installed.
    """
    by_path = {collection.path: collection for collection in CORE}
    for plugin in plugins() if added is None else added:
        for collection in plugin.collections:
            known = by_path.get(collection.path, replace(collection, routes=()))
            by_path[collection.path] = replace(known, routes=(*known.routes, *collection.routes))
    yield from by_path.values()


def routes_of(collection: Collection) -> Iterator[Route]:
    """Yield the declared routes of a collection that this app has; imports their modules."""
    for reference in collection.routes:
        for route in imported(reference).table:
            if collection.has(route.path) and (route.source is None or registration().wants(route.source)):
                yield route


def table(listed: Iterable[Collection] | None = None) -> list[Route]:
    """Return every declared route of collections, whose modules it imports; None means those of this app."""
    of_app = collections() if listed is None else listed
    return [route for collection in of_app for route in routes_of(collection)]


def blueprint() -> df.Blueprint:
    """Return a blueprint with a function for each collection."""
    blueprint = df.Blueprint()
    for collection in collections():
        add_collection(blueprint, collection, routes_of)
    if registration().route_prefix:
        # Below a prefix of its own everything is the API's; without one, other paths may be the app's.
        add_collection(blueprint, _UNMATCHED, routes_of)
    return blueprint
