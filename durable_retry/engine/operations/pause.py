"""The pause of an operation: what asks for one, and what ends it."""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import Field

from durable_retry.engine.base.instants import from_rfc3339
from durable_retry.engine.base.names import RESUME_EVENT
from durable_retry.engine.base.validation import (
    InvalidInputError,
    PositiveSeconds,
    Strict,
    validated,
    with_example,
)
from durable_retry.engine.retry.history import PastAction


class PauseOptions(Strict):
    """How one operation or many are paused."""

    reason: Annotated[
        Annotated[str, Field(min_length=1, max_length=200)] | None,
        Field(description="Why, for whoever looks at it."),
    ] = None
    for_seconds: Annotated[
        PositiveSeconds | None,
        Field(description="How long it lasts; null means until somebody resumes the operation."),
    ] = None
    stops_deadline: Annotated[
        bool,
        Field(description="Whether the operation gets the time of the pause on top of its deadline."),
    ] = False


class Pause(PauseOptions):
    """The body of a pause."""

    model_config = with_example(reason="The supplier changes its API.", for_seconds=600.0)

    @classmethod
    def of(cls, request: Any) -> Self:
        """Read the data of an external event; one in any other form pauses without an end."""
        members = request if isinstance(request, dict) else {}
        try:
            return validated(cls, {name: members[name] for name in cls.model_fields if name in members})
        except InvalidInputError:
            return cls()

    @staticmethod
    def is_over(request: Any, actions: Iterable[PastAction]) -> bool:
        """Whether this asks for a pause that has ended: a hub may deliver an external event twice."""
        ends = [action.at for action in actions if action.action == RESUME_EVENT]
        try:
            return bool(ends) and from_rfc3339(request["asked_at"]) <= ends[-1]
        except (KeyError, TypeError, ValueError):
            return False  # Of an older or another sender, which does not say when.

    @staticmethod
    def is_ended_by(request: Any, began_at: datetime) -> bool:
        """Whether an external event resumes what was paused at an instant."""
        try:
            return from_rfc3339(request["paused_at"]) == began_at
        except (KeyError, TypeError, ValueError):
            return False
