"""What callers send, validated: the body of an operation and its parts (contract section 4).

Strict: no unknown field, no silent conversion. Every mistake is reported at once, each with its JSON pointer.

    request = parse_operation(document)       # raises InvalidInputError with .problems
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from engine.outbound import header_name_problem, header_value_problem, path_problem
from engine.policy import Jitter, PresetName, Strategy
from engine.problem import InvalidInputError, Problem, pointer_of

MAX_KEY_CHARS: Final = 255
MAX_SECONDS: Final = 31_536_000.0
MAX_ATTEMPTS: Final = 1_000_000_000
MAX_EVENTS: Final = 20
MAX_HEADERS: Final = 64
MAX_QUERY_NAMES: Final = 128
MAX_TEXT_CHARS: Final = 1_048_576

type Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
type QueryScalar = str | int | float | bool
type Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False)]


def _acceptable(value: str, problem: str | None, kind: str) -> str:
    if problem is not None:
        raise PydanticCustomError(kind, "{problem}", {"problem": problem})
    return value


def _path(value: str) -> str:
    return _acceptable(value, path_problem(value), "path")


type RelativePath = Annotated[str, AfterValidator(_path)]
type Name = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.\-]*$")]
type Key = Annotated[str, Field(min_length=1, max_length=MAX_KEY_CHARS, pattern=r"^[\x21-\x7e]+$")]
type Label = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$")]
type QueueName = Annotated[str, Field(min_length=3, max_length=63, pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]


class Strict(BaseModel):
    """No unknown keys, no conversions, no changes afterwards."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class RetryOverride(Strict):
    """The keys of a `retry` table, or of an operation's `retry`. Only keys that were written count.

    `written()` gives those; `engine.policy.policy_from` and `overridden` take them.
    """

    preset: PresetName | None = None
    strategy: Strategy = "exponential"
    max_attempts: Annotated[int, Field(ge=-1, le=MAX_ATTEMPTS)] = 5
    initial_seconds: Seconds = 2.0
    factor: Annotated[float, Field(ge=1, le=100)] = 2.0
    max_seconds: Seconds = 60.0
    schedule_seconds: Annotated[list[Seconds], Field(max_length=1_000)] = []
    jitter: Jitter = "full"
    respect_retry_after: bool = True
    max_retry_after_seconds: Seconds = 300.0

    @field_validator("max_attempts")
    @classmethod
    def _never_zero(cls, value: int) -> int:
        return (
            value
            if value != 0
            else int(_acceptable("", "must be at least 1, or -1 for unlimited", "attempts"))
        )

    def written(self) -> dict[str, Any]:
        """Give the keys that were written, with their values."""
        return self.model_dump(exclude_unset=True)


class HttpCall(Strict):
    """The request to make of a dependency.

    Attributes:
        method: In capitals.
        path: Below the dependency's base_url.
        query: Parameters; a list repeats its name.
        headers: Beside those of the dependency; names in any case.
        body_json: The field `json`; left out and null differ, see `has_json`.
        body: Text in place of `json`.
    """

    method: Method
    path: RelativePath = ""
    query: Annotated[
        dict[str, QueryScalar | list[QueryScalar] | None], Field(max_length=MAX_QUERY_NAMES)
    ] = {}
    headers: Annotated[dict[str, str], Field(max_length=MAX_HEADERS)] = {}
    body_json: Any = Field(default=None, alias="json")
    body: Annotated[str, Field(max_length=MAX_TEXT_CHARS)] | None = None

    @field_validator("method", mode="before")
    @classmethod
    def _in_capitals(cls, value: Any) -> Any:
        return value.upper() if isinstance(value, str) else value

    @property
    def has_json(self) -> bool:
        """Whether `json` was given, null included."""
        return "body_json" in self.model_fields_set

    @model_validator(mode="after")
    def _one_body(self) -> Self:
        if self.has_json and self.body is not None:
            _acceptable("", "holds both json and body: one of them", "one_body")
        return self

    def to_json(self) -> dict[str, Any]:
        """Give the JSON form, the same however the request was written; `json` only when given."""
        form: dict[str, Any] = {
            "method": self.method,
            "path": self.path,
            "query": dict(self.query),
            "headers": dict(self.headers),
        }
        if self.has_json:
            form["json"] = self.body_json
        if self.body is not None:
            form["body"] = self.body
        return form


class Event(Strict):
    """A follow-up message: to a storage `queue`, or to `dependency` + `path` as a webhook."""

    type: Label
    queue: QueueName | None = None
    dependency: Name | None = None
    path: RelativePath | None = None
    data: Any = None

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        webhook = self.dependency is not None or self.path is not None
        if webhook == (self.queue is not None):
            _acceptable("", "needs either queue, or dependency and path", "one_target")
        if webhook and (self.dependency is None or self.path is None):
            _acceptable("", "needs both dependency and path for a webhook", "one_target")
        return self

    def to_json(self) -> dict[str, Any]:
        """Give the JSON form, without what was not given."""
        return self.model_dump(exclude_none=True) | {"data": self.data}


class OperationRequest(Strict):
    """The body of `POST /api/operations`.

    Attributes:
        dependency: With `request`: the call to make.
        request: See `HttpCall`.
        handler: With `input`: the Python handler to run.
        input: Any JSON.
        key: 1 to 255 visible ASCII characters; None when not given.
        correlation_id: The caller's name for the wider piece of work.
        deadline_seconds: For the whole operation; 0 means none; None takes the dependency's.
        retry: Changes to the dependency's policy, see `engine.policy.override_problems`.
        on_success: Follow-up messages.
    """

    dependency: Name | None = None
    request: HttpCall | None = None
    handler: Name | None = None
    input: Any = None
    key: Key | None = None
    correlation_id: Label | None = None
    deadline_seconds: Seconds | None = None
    retry: RetryOverride | None = None
    on_success: Annotated[list[Event], Field(max_length=MAX_EVENTS)] = []


def parse_operation(document: Any) -> OperationRequest:
    """Validate the body of an operation.

    Raises:
        InvalidInputError: with every mistake and its JSON pointer.
    """
    raise NotImplementedError


def problems_of(error: ValidationError) -> list[Problem]:
    """Turn pydantic's errors into problems with pointers."""
    raise NotImplementedError
