"""HTTP: what a retry policy would do."""

from dataclasses import replace
from typing import Self

from pydantic import model_validator

from durable_retry.base.validation import (
    InvalidInputError,
    Problem,
    ResourceName,
    Seconds,
    Strict,
    refuse,
    with_example,
)
from durable_retry.features.preview.rules import PolicyPreview, limits_shown, preview
from durable_retry.http.routes import OK, RouteAnswer, Routes
from durable_retry.rules.config.dependency import Bounds
from durable_retry.rules.retry.policy import (
    RetryOverride,
    Timeouts,
    overridden,
    policy_from,
    policy_problems,
)
from durable_retry.settings.configuration import find_dependency

routes = Routes("dependencies")


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
        limits = limits_shown(dependency.bounds or Bounds(), timeouts.attempt_seconds)
    if question.deadline_seconds is not None:
        timeouts = replace(timeouts, deadline_seconds=question.deadline_seconds)
    problems = policy_problems(policy)
    if problems:
        raise InvalidInputError([Problem(f"/retry/{key}", detail) for key, detail in problems])
    return preview(policy, timeouts, limits)


@routes.post(
    "policies/preview",
    body=PolicyQuestion,
    answers=(RouteAnswer(OK, "The waits.", PolicyPreview),),
    errors=(),
    only_reads=True,
)
async def preview_policy(body: PolicyQuestion) -> PolicyPreview:
    """List every wait of a policy and say whether it fits the deadline."""
    return previewed(body)
