"""HTTP: the dependencies without their secrets, the app's handlers, and what a retry policy would do."""

from typing import Annotated

import azure.functions as func
from pydantic import Field

from durable_retry.engine.base.answers import Answer, Page
from durable_retry.engine.config.dependency import Dependency
from durable_retry.engine.retry.backoff import PolicyPreview
from durable_retry.handlers.registry import registered_handlers
from durable_retry.http.answers import json_answer
from durable_retry.http.routes import OK, RouteAnswer, Routes, page
from durable_retry.services.policies import PolicyQuestion, previewed
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
    dependency: Annotated[str, Field(description="Its policy and its circuit are that dependency's.")]


@routes.get("handlers", answers=page(Page[HandlerSummary]), errors=())
async def list_handlers() -> func.HttpResponse:
    """List the handlers that the app has."""
    items = tuple(
        HandlerSummary(name=name, dependency=handler.dependency)
        for name, handler in sorted(registered_handlers().items())
    )
    return json_answer(Page[HandlerSummary](items=items))


@routes.post(
    "policies/preview",
    body=PolicyQuestion,
    answers=(RouteAnswer(OK, "The waits.", PolicyPreview),),
    errors=(),
    only_reads=True,
)
async def preview_policy(body: PolicyQuestion) -> func.HttpResponse:
    """List every wait of a policy and say whether it fits the deadline."""
    return json_answer(previewed(body))
