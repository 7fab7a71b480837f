"""HTTP: the handlers of the app."""

from pydantic import Field

from durable_retry.base.answers import Answer, Page
from durable_retry.features.handlers.registry import registered_handlers
from durable_retry.http.routes import Routes

routes = Routes("dependencies")


class HandlerSummary(Answer):
    """A Python function that operations can run."""

    name: str
    dependency: str = Field(description="Its policy and its circuit are that dependency's.")


@routes.get("handlers", errors=())
async def list_handlers() -> Page[HandlerSummary]:
    """List the handlers that the app has."""
    items = tuple(
        HandlerSummary(name=name, dependency=handler.dependency)
        for name, handler in sorted(registered_handlers().items())
    )
    return Page[HandlerSummary](items=items)
