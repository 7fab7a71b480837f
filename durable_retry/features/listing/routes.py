"""HTTP: the dependencies without their secrets, and the handlers of the app."""

import azure.functions as func
from pydantic import Field

from durable_retry.base.answers import Answer, Page
from durable_retry.handlers.registry import registered_handlers
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


class HandlerSummary(Answer):
    """A Python function that operations can run."""

    name: str
    dependency: str = Field(description="Its policy and its circuit are that dependency's.")


@routes.get("handlers", answers=page(Page[HandlerSummary]), errors=())
async def list_handlers() -> func.HttpResponse:
    """List the handlers that the app has."""
    items = tuple(
        HandlerSummary(name=name, dependency=handler.dependency)
        for name, handler in sorted(registered_handlers().items())
    )
    return json_answer(Page[HandlerSummary](items=items))
