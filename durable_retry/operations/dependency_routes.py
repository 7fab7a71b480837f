"""HTTP: the dependencies without their secrets, the handlers of the app, and what a retry policy would do."""

from dataclasses import replace
from typing import Annotated, Self

import azure.functions as func
from pydantic import Field, model_validator

from durable_retry.base.answers import Answer, Page
from durable_retry.base.validation import (
    InvalidInputError,
    Problem,
    ResourceName,
    Seconds,
    Strict,
    refuse,
    with_example,
)
from durable_retry.handlers.registry import registered_handlers
from durable_retry.http.answers import json_answer
from durable_retry.http.routes import OK, RouteAnswer, Routes, page
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.retry.backoff import PolicyPreview, limits_shown, preview
from durable_retry.rules.retry.policy import (
    RetryOverride,
    Timeouts,
    overridden,
    policy_from,
    policy_problems,
)
from durable_retry.settings.configuration import dependencies, find_dependency


class PolicyQuestion(Strict):
    """The body: a dependency's own policy, a policy spelled out, or the one changed by the other.

    Attributes:
        dependency: Its policy and timeouts; None for the standard preset and no dependency's limits.
        retry: Changes, as an operation's `retry`.
        deadline_seconds: In place of the dependency's; 0 means none.
    """

    model_config = with_example(dependency="payments", retry={"max_attempts": 3})

    dependency: ResourceName | None = None
    retry: RetryOverride | None = None
    deadline_seconds: Seconds | None = None

    @model_validator(mode="after")
    def _names_a_policy(self) -> Self:
        if self.dependency is None and self.retry is None:
            raise refuse("needs dependency, or retry, or both")
        return self


def previewed(question: PolicyQuestion) -> PolicyPreview:
    """List every wait of a policy and say whether it fits the deadline.

    Raises:
        InvalidInputError: No dependency has this name, or the policy is none.
    """
    changes = {} if question.retry is None else question.retry.written()
    timeouts, policy, limits = Timeouts(), policy_from(changes), None
    if question.dependency is not None:
        dependency = find_dependency(question.dependency)
        if dependency is None:
            raise InvalidInputError([Problem("/dependency", "no dependency has this name")])
        timeouts, policy = dependency.timeouts, overridden(dependency.retry, changes)
        limits = limits_shown(dependency.limits, timeouts.attempt_seconds)
    if question.deadline_seconds is not None:
        timeouts = replace(timeouts, deadline_seconds=question.deadline_seconds)
    problems = policy_problems(policy)
    if problems:
        raise InvalidInputError([Problem(f"/retry/{key}", detail) for key, detail in problems])
    return preview(policy, timeouts, limits)


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
