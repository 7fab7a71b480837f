"""HTTP: the dependencies without their secrets."""

import azure.functions as func

from durable_retry.base.answers import Page
from durable_retry.http.answers import json_answer
from durable_retry.http.routes import Routes, page
from durable_retry.rules.config.dependency import Dependency
from durable_retry.settings.configuration import dependencies

routes = Routes("dependencies")


@routes.get("dependencies", answers=page(Page[Dependency]), errors=())
async def list_dependencies() -> func.HttpResponse:
    """List every dependency with its resolved policy, secrets masked."""
    # A file holds the dependencies, so they are few: one page has them all.
    items = tuple(dependency for _, dependency in sorted(dependencies().dependencies.items()))
    return json_answer(Page[Dependency](items=items))
