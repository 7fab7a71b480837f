"""The body of `POST /api/sagas`, validated; what a step's operations are like is left to `engine.models`."""

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from engine.models import Name
from engine.saga import MAX_STEPS
from engine.validation import Strict, refuse


class StepRequest(Strict):
    """One step: its operation, and the operation that undoes it.

    Attributes:
        name: Unique in its saga.
        operation: A body of `POST /api/operations`.
        compensation: Another one; None when nothing can or needs to undo the step.
    """

    name: Name
    operation: dict[str, Any]
    compensation: dict[str, Any] | None = None


class SagaRequest(Strict):
    """The body of `POST /api/sagas`."""

    steps: Annotated[list[StepRequest], Field(min_length=1, max_length=MAX_STEPS)]

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        if len({step.name for step in self.steps}) < len(self.steps):
            raise refuse("two steps have one name")
        return self
