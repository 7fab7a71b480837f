"""HTTP: the dependencies without their secrets."""

from durable_retry.base.answers import Page
from durable_retry.http.routes import Routes
from durable_retry.rules.config.dependency import Dependency
from durable_retry.settings.configuration import dependencies

routes = Routes("dependencies")


@routes.get("dependencies", errors=())
async def list_dependencies() -> Page[Dependency]:
    """List every dependency with its resolved policy, secrets masked."""
    # A file holds the dependencies, so they are few: one page has them all.
    items = tuple(dependency for _, dependency in sorted(dependencies().dependencies.items()))
    return Page[Dependency](items=items)
