"""HTTP: the configured dependencies without their secrets, and what a retry policy would do."""

from dataclasses import replace
from typing import Annotated, Self

import azure.functions as func
from pydantic import BaseModel, Field, model_validator

from durable_retry.engine.base.masking import Show
from durable_retry.engine.base.names import Category
from durable_retry.engine.base.validation import (
    InvalidInputError,
    Problem,
    ResourceName,
    Seconds,
    Strict,
    refuse,
)
from durable_retry.engine.circuit.retry_budget import RetryBudgetSettings
from durable_retry.engine.circuit.states import CircuitSettings
from durable_retry.engine.limits import LimitSettings
from durable_retry.engine.retry.backoff import Preview, preview
from durable_retry.engine.retry.policy import (
    RetryOverride,
    RetryPolicy,
    Timeouts,
    overridden,
    policy_from,
    policy_problems,
)
from durable_retry.settings.configuration import dependencies, find_dependency
from durable_retry.triggers.http.answers import json_answer, page_answer
from durable_retry.triggers.http.routes import OK, RouteAnswer, Routes, page

routes = Routes("dependencies")


class AuthDocument(BaseModel):
    """The header that proves who calls, its value masked."""

    header: str
    value: str


class IdempotencyDocument(BaseModel):
    """How a dependency recognises repeated requests."""

    header: str
    ttl_seconds: float
    fingerprint: list[str]


class WebhookDocument(BaseModel):
    """What events that go to a dependency are signed with, each masked."""

    secrets: list[str]


class MaskingDocument(BaseModel):
    """What people see of requests, inputs and errors."""

    show: Show
    fields: list[str]
    pointers: list[str]


class DependencyDocument(BaseModel):
    """A downstream service, its secrets masked."""

    name: str
    base_url: str
    headers: dict[str, str]
    auth: AuthDocument | None
    timeouts: Timeouts
    retry: RetryPolicy
    circuit: CircuitSettings
    retry_budget: RetryBudgetSettings
    limits: LimitSettings
    idempotency: IdempotencyDocument
    classify: dict[str, Category]
    webhook: WebhookDocument
    masking: MaskingDocument


class DependencyPage(BaseModel):
    """Every dependency."""

    items: list[DependencyDocument]
    next_cursor: None


class PolicyWait(BaseModel):
    """The wait after one attempt."""

    after_attempt: int
    least_seconds: float
    expected_seconds: float
    most_seconds: float


class PolicyTotal(BaseModel):
    """All waits together, and all attempts when each takes its whole timeout."""

    least_seconds: float
    expected_seconds: float
    most_seconds: float
    attempts_at_most_seconds: float


class PolicyLimits(BaseModel):
    """What the limits of a dependency let through; null means no limit."""

    at_once: Annotated[int | None, Field(description="Attempts at once, fleet-wide.")]
    at_once_least: Annotated[
        int | None, Field(description="What adaptive concurrency lowers it to; as at_once without.")
    ]
    starts_per_second: Annotated[float | None, Field(description="Starts per second, fleet-wide.")]
    slowest_per_second: Annotated[
        float | None, Field(description="Attempts a second when each takes its whole timeout.")
    ]


class PolicyPreview(BaseModel):
    """What a policy would do."""

    waits: list[PolicyWait]
    waits_complete: bool
    total: PolicyTotal
    deadline_seconds: float
    fits_deadline: bool
    warnings: list[str]
    limits: Annotated[PolicyLimits | None, Field(description="null without a dependency")]


class PolicyQuestion(Strict):
    """The body: a dependency's own policy, a policy spelled out, or the one changed by the other.

    Attributes:
        dependency: Its policy and timeouts; None for the standard preset and no dependency's limits.
        retry: Changes, as an operation's `retry`.
        deadline_seconds: In place of the dependency's; 0 means none.
    """

    dependency: ResourceName | None = None
    retry: RetryOverride | None = None
    deadline_seconds: Seconds | None = None

    @model_validator(mode="after")
    def _names_a_policy(self) -> Self:
        if self.dependency is None and self.retry is None:
            raise refuse("needs dependency, or retry, or both")
        return self


@routes.get("dependencies", answers=page(DependencyPage))
async def list_dependencies() -> func.HttpResponse:
    """List every dependency with its resolved policy, secrets masked."""
    items = [dependency.to_json() for _, dependency in sorted(dependencies().dependencies.items())]
    # A file holds the dependencies, so they are few: one page has them all.
    return page_answer(items, None)


@routes.post(
    "policies/preview",
    body=PolicyQuestion,
    answers=(RouteAnswer(OK, "The waits.", PolicyPreview),),
    only_reads=True,
)
async def preview_policy(body: PolicyQuestion) -> func.HttpResponse:
    """List every wait of a policy and say whether it fits the deadline."""
    return json_answer({**_preview(body).to_json(), "limits": _limits(body)})


def _limits(question: PolicyQuestion) -> dict[str, float | None] | None:
    dependency = None if question.dependency is None else find_dependency(question.dependency)
    if dependency is None:
        return None
    limits = dependency.limits
    least = limits.min_concurrency if limits.adaptive else limits.max_concurrency
    rates = [limits.rate_per_second] if limits.rate_per_second > 0 else []
    if limits.max_concurrency > 0:
        rates.append(least / dependency.timeouts.attempt_seconds)
    return {
        "at_once": limits.max_concurrency or None,
        "at_once_least": least or None,
        "starts_per_second": limits.rate_per_second or None,
        "slowest_per_second": round(min(rates), 3) if rates else None,
    }


def _preview(question: PolicyQuestion) -> Preview:
    changes = {} if question.retry is None else question.retry.written()
    timeouts = Timeouts()
    policy = policy_from(changes)
    if question.dependency is not None:
        dependency = find_dependency(question.dependency)
        if dependency is None:
            raise InvalidInputError([Problem("/dependency", "no dependency has this name")])
        timeouts, policy = dependency.timeouts, overridden(dependency.retry, changes)
    if question.deadline_seconds is not None:
        timeouts = replace(timeouts, deadline_seconds=question.deadline_seconds)
    problems = policy_problems(policy)
    if problems:
        raise InvalidInputError([Problem(f"/retry/{key}", detail) for key, detail in problems])
    return preview(policy, timeouts)
