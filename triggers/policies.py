"""HTTP: what a retry policy would do."""

from dataclasses import replace
from typing import Self

import azure.functions as func
from pydantic import model_validator

from engine.models import Name, RetryOverride, Seconds
from engine.policy import Timeouts, overridden, policy_from, policy_problems
from engine.preview import Preview, preview
from engine.problem import InvalidInputError, Problem
from engine.validation import Strict, refuse, validated
from stores.configuration import find_dependency
from triggers.bodies import read_body
from triggers.http_blueprint import HttpBlueprint
from triggers.problems import json_answer

blueprint = HttpBlueprint()


class PolicyQuestion(Strict):
    """The body: a dependency's own policy, a policy spelled out, or the one changed by the other.

    Attributes:
        dependency: Its policy and timeouts; None for the standard preset and no dependency's limits.
        retry: Changes, as an operation's `retry`.
        deadline_seconds: In place of the dependency's; 0 means none.
    """

    dependency: Name | None = None
    retry: RetryOverride | None = None
    deadline_seconds: Seconds | None = None

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if self.dependency is None and self.retry is None:
            raise refuse("needs dependency, or retry, or both")
        return self


@blueprint.route(route="policies/preview", methods=["POST"])
async def preview_policy(req: func.HttpRequest) -> func.HttpResponse:
    """List every wait of a policy, the total, and whether it fits the deadline."""
    question = validated(PolicyQuestion, read_body(req))
    return json_answer(_answer(question).to_json())


def _answer(question: PolicyQuestion) -> Preview:
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
    problems = policy_problems(policy, timeouts.deadline_seconds)
    if problems:
        raise InvalidInputError([Problem(f"/retry/{key}", detail) for key, detail in problems])
    return preview(policy, timeouts)
