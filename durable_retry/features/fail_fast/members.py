"""What a dependency and a submission say of an open circuit."""

from datetime import datetime
from typing import Final, Literal

from pydantic import Field

from durable_retry.base.validation import Strict
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.operations.request import Members, Part

FAIL_FAST: Final = "fail_fast"
"""The feature."""


class FailFastKeys(Strict):
    """The keys that a dependency has of it.

    Attributes:
        when_open: What operations do that come while its circuit is open: they `wait`, or whoever submits
            them over HTTP, in the app or by `call` is refused at once (`refuse`).
    """

    when_open: Literal["wait", "refuse"] = "wait"


class FailFastMembers(Strict):
    """The members that a submission has of it."""

    when_open: Literal["wait", "refuse"] | None = Field(
        default=None,
        description="Whether it waits, or is refused, where the circuit is open already; "
        "null takes what the dependency has.",
    )


class _FailFast(Members):
    model = FailFastMembers

    def part_of(
        self, members: FailFastMembers | None, _target: str, dependency: Dependency, _now: datetime
    ) -> Part | None:
        own = None if members is None else members.when_open
        when_open = own or dependency.keys_of(FAIL_FAST, FailFastKeys).when_open
        return Part({}) if when_open == "refuse" else None


MEMBERS: Final = _FailFast()
