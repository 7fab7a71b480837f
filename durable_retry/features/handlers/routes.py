"""HTTP: the handlers of the app."""

import azure.functions as func
from pydantic import Field

from durable_retry.base.answers import Answer, Page
from durable_retry.features.handlers.registry import registered_handlers
from durable_retry.http.answers import json_answer
from durable_retry.http.routes import Routes, page

routes = Routes("dependencies")


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
