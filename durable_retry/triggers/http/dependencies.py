"""HTTP: the configured dependencies without their secrets, and what a retry policy would do."""

import azure.functions as func

from durable_retry.engine.base.answers import Page
from durable_retry.engine.config.dependency import Dependency
from durable_retry.engine.retry.preview import PolicyPreview
from durable_retry.http.answers import json_answer
from durable_retry.http.routes import OK, RouteAnswer, Routes, page
from durable_retry.services.policies import PolicyQuestion, previewed
from durable_retry.settings.configuration import dependencies

routes = Routes("dependencies")


@routes.get("dependencies", answers=page(Page[Dependency]))
async def list_dependencies() -> func.HttpResponse:
    """List every dependency with its resolved policy, secrets masked."""
    # A file holds the dependencies, so they are few: one page has them all.
    items = tuple(dependency for _, dependency in sorted(dependencies().dependencies.items()))
    return json_answer(Page[Dependency](items=items))


@routes.post(
    "policies/preview",
    body=PolicyQuestion,
    answers=(RouteAnswer(OK, "The waits.", PolicyPreview),),
    only_reads=True,
)
async def preview_policy(body: PolicyQuestion) -> func.HttpResponse:
    """List every wait of a policy and say whether it fits the deadline."""
    return json_answer(previewed(body))
