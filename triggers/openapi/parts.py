"""What a route of the API is made of, for its documentation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Literal

from pydantic import BaseModel

from triggers.openapi.operation_answers import ProblemDocument

type Verb = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter or a request header.

    Attributes:
        name: As it is sent.
        schema: JSON schema of its value.
        description: What it does, as a sentence.
        place: `query` or `header`.
    """

    name: str
    schema: Mapping[str, Any]
    description: str
    place: Literal["query", "header"] = "query"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that a route gives.

    Attributes:
        status: Of the answer.
        description: When it is given.
        model: Of its body; None when any JSON object, or a file, stands there.
        headers: Names of those it may have, of `HEADERS`.
        media_type: Of its body; "" when it has none.
    """

    status: HTTPStatus
    description: str
    model: type[BaseModel] | None = None
    headers: tuple[str, ...] = ()
    media_type: str = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A route of the API.

    Attributes:
        function: The name of the function that answers it.
        method: HTTP method.
        path: Below `/api`, with `{parameters}`; `{*path}` takes slashes too, which OpenAPI cannot say.
        tag: Which part of the API it belongs to.
        summary: What it does, as a phrase.
        body: Model that validates the request body; None when there is none.
        body_required: False when the body may be left out.
        takes_cloud_events: Whether the body may come as the `data` of a CloudEvent.
        parameters: Of query and header; those of the path are read off it.
        answers: Every answer that is no problem.
        problems: The statuses of every problem that it can answer, beside those of every route.
        anonymous: Whether it asks for no key.
    """

    function: str
    method: Verb
    path: str
    tag: str
    summary: str
    body: type[BaseModel] | None = None
    body_required: bool = True
    takes_cloud_events: bool = False
    parameters: tuple[Parameter, ...] = ()
    answers: tuple[Answer, ...] = field(default=())
    problems: tuple[HTTPStatus, ...] = ()
    anonymous: bool = False

    @property
    def models(self) -> list[type[BaseModel]]:
        """The models of its bodies."""
        answered = [answer.model for answer in self.answers if answer.model is not None]
        return [ProblemDocument, *answered, *([] if self.body is None else [self.body])]


PROBLEMS: Final[Mapping[HTTPStatus, str]] = {
    HTTPStatus.BAD_REQUEST: "What was sent does not validate; `errors` lists every mistake with its pointer.",
    HTTPStatus.NOT_FOUND: "There is no such thing.",
    HTTPStatus.CONFLICT: "What was asked cannot be done to it as it stands.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is over the limit.",
    HTTPStatus.UNPROCESSABLE_ENTITY: (
        "The key belongs to another request; `type` ends in `/idempotency-key-reused`."
    ),
    HTTPStatus.SERVICE_UNAVAILABLE: (
        "A part that the app needs did not answer: `type` ends in `/task-hub-unavailable` or in "
        "`/storage-unavailable`. Send the same request again."
    ),
}

HEADERS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "Location": ("Where its status is.", {"type": "string"}),
    "Retry-After": ("Seconds after which to look, or to send it again.", {"type": "string"}),
    "Idempotent-Replayed": ("The key was seen before: nothing was started.", {"const": "true"}),
    "Preference-Applied": ("The wait that was granted.", {"type": "string"}),
}
