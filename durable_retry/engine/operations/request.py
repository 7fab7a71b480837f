"""The bodies that callers send, validated (contract section 4).

Strict: no unknown field, no silent conversion. Every mistake is reported at once, each with its JSON pointer.

    request = parse_operation(document)       # raises InvalidInputError with .problems
"""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from durable_retry.engine.base.json_text import json_problems
from durable_retry.engine.base.request_fields import (
    HeaderName,
    HeaderValue,
    Key,
    Label,
    QueueName,
    RelativePath,
    ResourceName,
    Seconds,
)
from durable_retry.engine.base.validation import (
    InvalidInputError,
    Problem,
    Strict,
    refuse,
    validated,
)
from durable_retry.engine.retry.override import RetryOverride

MAX_EVENTS: Final = 20
MAX_HEADERS: Final = 64
MAX_QUERY_NAMES: Final = 128
MAX_TEXT_CHARS: Final = 1_048_576

type Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def _query_value(value: Any) -> Any:
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str | int | float) for item in items):
        raise refuse("must be a string, a number, true, false, or a list of these")
    return value


def _capitals(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


class HttpCall(Strict):
    """The request to a dependency.

    Attributes:
        method: In capitals.
        path: Below the dependency's base_url.
        query: Parameters; a list repeats its name.
        headers: In addition to those of the dependency; names in any case.
        body_json: The field `json`; absent and null differ, see `has_json`.
        body: Text instead of `json`.
    """

    method: Annotated[Method, BeforeValidator(_capitals)]
    path: RelativePath = ""
    query: Annotated[
        dict[str, Annotated[Any, AfterValidator(_query_value)]], Field(max_length=MAX_QUERY_NAMES)
    ] = Field(default_factory=dict)
    headers: Annotated[dict[HeaderName, HeaderValue], Field(max_length=MAX_HEADERS)] = Field(
        default_factory=dict
    )
    body_json: Any = Field(default=None, alias="json")
    body: Annotated[str, Field(max_length=MAX_TEXT_CHARS)] | None = None

    @property
    def has_json(self) -> bool:
        """Whether `json` was given, null included."""
        return "body_json" in self.model_fields_set

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if len({name.lower() for name in self.headers}) < len(self.headers):
            raise refuse("headers holds one name twice, in different case")
        if self.has_json and self.body is not None:
            raise refuse("holds both json and body: one of them")
        return self

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, the same however the request was written; `json` only when given."""
        form: dict[str, Any] = {
            "method": self.method,
            "path": self.path,
            "query": dict(self.query),
            "headers": {name.lower(): value for name, value in self.headers.items()},
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
    dependency: ResourceName | None = None
    path: RelativePath | None = None
    data: Any = None

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        webhook = self.dependency is not None or self.path is not None
        if webhook == (self.queue is not None):
            raise refuse("needs either queue, or dependency and path")
        if webhook and (self.dependency is None or self.path is None):
            raise refuse("needs both dependency and path for a webhook")
        return self

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, without the target that was not given."""
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
        retry: Changes to the dependency's policy, see `engine.retry.policy.override_problems`.
        on_success: Follow-up messages.
    """

    dependency: ResourceName | None = None
    request: HttpCall | None = None
    handler: ResourceName | None = None
    input: Any = None
    key: Key | None = None
    correlation_id: Label | None = None
    deadline_seconds: Seconds | None = None
    retry: RetryOverride | None = None
    on_success: Annotated[list[Event], Field(max_length=MAX_EVENTS)] = Field(default_factory=list)


def parse_operation(document: Any) -> OperationRequest:
    """Validate the body of an operation.

    Raises:
        InvalidInputError: with every mistake and its JSON pointer.
    """
    # First of all: what follows walks the document recursively, and its depth is bounded only after this.
    if unsendable := json_problems(document):
        raise InvalidInputError(unsendable)
    # Reported together with the problems of the fields, so that a caller repairs everything at once.
    shape = _shape_problems(document)
    try:
        request = validated(OperationRequest, document)
    except InvalidInputError as error:
        raise InvalidInputError([*shape, *error.problems]) from None
    if shape:
        raise InvalidInputError(shape)
    return request


def _shape_problems(document: Any) -> list[Problem]:
    """Check that the body has exactly one of its two forms: dependency and request, or handler and input."""
    if not isinstance(document, dict):
        return []
    given = {name for name in ("dependency", "request", "handler") if document.get(name) is not None}
    if "handler" in given:
        return [
            Problem(f"/{name}", "cannot stand beside handler: an operation has one of the two forms")
            for name in sorted(given - {"handler"})
        ]
    if not given:
        return [Problem("", "needs dependency and request, or handler and input")]
    found = [Problem(f"/{name}", "is required") for name in sorted({"dependency", "request"} - given)]
    if "input" in document:
        found.append(Problem("/input", "belongs to a handler"))
    return found
