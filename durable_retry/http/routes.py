"""A route is declared once, and answers with the document that its function returns.

    @routes.get("circuits/{dependency}")
    async def get_circuit(dependency: str) -> CircuitDocument: ...

The declaration reads the function's arguments, turns exceptions into problem documents, and is the entry of
the table by which requests find their route (`dispatch.py`) and from which `openapi.json` is made.

    input invalid, unknown query parameter  400, `/problems/invalid-input`, with every mistake
    body too large                          413, `/problems/body-too-large`
    nobody's key, or more than one key      401, `/problems/unauthorized`
    the caller's role does not allow it     403, `/problems/forbidden`
    task hub away                           503, `/problems/task-hub-unavailable`
    storage away                            503, `/problems/storage-unavailable`
    too much is under way                   503, `/problems/overloaded`
"""

import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Literal, TypedDict, Unpack, cast
from urllib.parse import urlsplit

import azure.functions as func
from pydantic import BaseModel

from durable_retry.base.answers import Answer, Page
from durable_retry.base.documents import MAX_DEPTH, read_checked
from durable_retry.base.json_forms import JsonShape
from durable_retry.base.names import Role
from durable_retry.base.validation import InvalidInputError, Problem, pointer_of, validated
from durable_retry.http.answers import (
    BodyTooLargeError,
    ForbiddenError,
    Refusals,
    json_answer,
    problem_of,
    unless_known,
)
from durable_retry.http.callers import ANYBODY, Act, Caller, caller_of, report_act
from durable_retry.http.parameters import IF_NONE_MATCH, Parameter
from durable_retry.hub.binding import TaskHub
from durable_retry.settings.configuration import app_settings

type Verb = Literal["GET", "POST", "DELETE"]
type RouteFunction = Callable[..., Awaitable[func.HttpResponse | Answer | JsonShape]]
type InPath = Mapping[str, str]
"""The values of the parameters in a path, decoded, by name."""
type RouteAnswering = Callable[[func.HttpRequest, TaskHub, InPath], Awaitable[func.HttpResponse]]

OK: Final = HTTPStatus.OK
ACCEPTED: Final = HTTPStatus.ACCEPTED
INVALID: Final = HTTPStatus.BAD_REQUEST
UNAUTHORIZED: Final = HTTPStatus.UNAUTHORIZED
FORBIDDEN: Final = HTTPStatus.FORBIDDEN
MISSING: Final = HTTPStatus.NOT_FOUND
CONFLICT: Final = HTTPStatus.CONFLICT
TOO_LARGE: Final = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
KEY_REUSED: Final = HTTPStatus.UNPROCESSABLE_ENTITY
NOT_MODIFIED: Final = HTTPStatus.NOT_MODIFIED
AWAY: Final = HTTPStatus.SERVICE_UNAVAILABLE

_JSON: Final = "application/json"

_log = logging.getLogger(__name__)

# Query parameters in which the Functions host takes its keys, in any case.
_HOST_PARAMETERS: Final = frozenset({"code", "clientid"})


def read_body[T](
    request: func.HttpRequest,
    check: Callable[[Any], T],
    *,
    limit_bytes: int | None = None,
    levels: int = MAX_DEPTH,
    has_parts: bool = False,
) -> T:
    """Return what a check makes of a JSON body.

    Args:
        limit_bytes: The largest body; None means that of an operation.
        levels: As in `read_checked`; so is `has_parts`.

    Raises:
        InvalidInputError: It is not JSON, or the check refuses it; with every mistake.
    """
    limit = app_settings().max_body_bytes if limit_bytes is None else limit_bytes
    body = request.get_body()
    if len(body) > limit:
        raise BodyTooLargeError(limit)
    return read_checked(body, check, levels=levels, has_parts=has_parts)


def header(request: func.HttpRequest, name: str) -> str | None:
    get: Callable[[str], str | None] = request.headers.get
    return get(name)


def url_of(request: func.HttpRequest) -> str:
    """Return a request's own URL without query, and without a slash at the end."""
    parts = urlsplit(request.url)
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


class Query:
    """The values of a request's query parameters: `query[LIMIT]`."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __getitem__[T](self, parameter: Parameter[T]) -> T:
        """Return the value of a parameter that the route declares, or its default."""
        return cast("T", self._values[parameter.name])

    def into[T](self, cls: type[T], **more: Any) -> T:
        """Return a filter, a dataclass: the values by the names of its fields, and more."""
        names = {field.name for field in fields(cast("Any", cls))}
        return cls(**{name: value for name, value in self._values.items() if name in names} | more)


def read_query(parameters: Iterable[Parameter[Any]], sent: Mapping[str, str]) -> Query:
    declared = {parameter.name: parameter for parameter in parameters if parameter.place == "query"}
    unknown = sorted(name for name in sent if name not in declared and name.lower() not in _HOST_PARAMETERS)
    taken = f"this route takes {', '.join(sorted(declared)) or 'none'}"
    problems = [Problem(pointer_of(name), f"is not a known parameter; {taken}") for name in unknown]
    values: dict[str, Any] = {}
    for name, parameter in declared.items():
        try:
            text = sent.get(name)
            values[name] = parameter.read(text) if text else parameter.default
        except ValueError:
            problems.append(Problem(pointer_of(name), parameter.mistake))
    if problems:
        raise InvalidInputError(problems)
    return Query(values)


type AnswerModel = type[BaseModel | JsonShape]


@dataclass(frozen=True, slots=True)
class RouteAnswer:
    """An answer that a route gives.

    Attributes:
        model: The model of its body; None when any JSON object, or a file, stands there.
        headers: Names of those it may have, of `features.openapi.document.HEADERS`.
        media_type: The media type of its body; "" when it has none.
    """

    status: HTTPStatus
    description: str
    model: AnswerModel | None = None
    headers: tuple[str, ...] = ()
    media_type: str = _JSON


def page(model: AnswerModel, looked_at: str = "") -> tuple[RouteAnswer, ...]:
    """Answer a page of a list; `looked_at` says what a page looks at, where few of it may match."""
    description = "A page; `next_cursor` is null at the end."
    if looked_at:
        description = (
            f"A page, the newest first. It looks at {looked_at}, so it may be short or empty while "
            "`next_cursor`, which looks further, is not null."
        )
    return (RouteAnswer(OK, description, model),)


def shown(model: AnswerModel) -> tuple[RouteAnswer, ...]:
    return (RouteAnswer(OK, "The document, as it stands.", model),)


def accepted(model: AnswerModel, description: str, *headers: str) -> tuple[RouteAnswer, ...]:
    return (RouteAnswer(ACCEPTED, description, model, headers),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A declared route.

    Attributes:
        path: Below `/api/`, with `{parameters}`; `{*path}` takes slashes too, which OpenAPI cannot say.
        answers: The first is for the document that its function returns. Not declared: that document alone.
        moving: Names of members that change with the time of the request alone; no part of the entity tag.
        errors: The statuses of its problem documents; 400, and 413 with a body, are added to them. None means
            those that most have: 503; with an id in the path 404; and, where it changes what has the id, 409.
        body: Model that validates the request body; None when there is none.
        takes_cloud_events: Whether the body may come as the `data` of a CloudEvent.
        only_reads: Whether a reader may call it although it is no GET.
        for_callers: Whether a caller may call it, who submits work and looks at it by its id.
        for_operators: Whether only an operator may call it although it changes nothing.
        act: What the activity says of it; None says nothing.
        source: Name of the source without which the app has no such route.
        respond: Answers a request whose path this is.
    """

    function: str
    method: Verb
    path: str
    tag: str
    summary: str
    description: str
    answers: tuple[RouteAnswer, ...]
    moving: frozenset[str] = frozenset()
    errors: tuple[HTTPStatus, ...] | None = None
    parameters: tuple[Parameter[Any], ...] = ()
    body: type[BaseModel] | None = None
    body_required: bool = True
    takes_cloud_events: bool = False
    anonymous: bool = False
    only_reads: bool = False
    for_callers: bool = False
    for_operators: bool = False
    act: Act | None = None
    source: str | None = None
    respond: RouteAnswering

    @property
    def changes(self) -> bool:
        return self.method != "GET" and not self.only_reads

    @property
    def roles(self) -> tuple[Role, ...]:
        """Who may call it."""
        if self.anonymous:
            return tuple(Role)
        caller = (Role.CALLER,) if self.for_callers else ()
        reader = () if self.changes or self.for_operators else (Role.READER,)
        return (*caller, *reader, Role.OPERATOR)

    @property
    def problems(self) -> tuple[HTTPStatus, ...]:
        """The status of every problem document that it can answer."""
        refused = () if self.anonymous else (UNAUTHORIZED, FORBIDDEN)
        errors = self._usual_errors if self.errors is None else self.errors
        return (INVALID, *refused, *(() if self.body is None else (TOO_LARGE,)), *errors)

    @property
    def _usual_errors(self) -> tuple[HTTPStatus, ...]:
        if not self.path_parameters:
            return (AWAY,)
        return (MISSING, CONFLICT, AWAY) if self.changes else (MISSING, AWAY)

    @property
    def is_conditional(self) -> bool:
        """Whether it answers 304 to a caller that has the present version of a document."""
        is_document = any(answer.status is OK and answer.media_type == _JSON for answer in self.answers)
        return self.method == "GET" and is_document

    @property
    def path_parameters(self) -> list[str]:
        return re.findall(r"\{\*?(\w+)\}", self.path)


class Declaration(TypedDict, total=False):
    """What a route declares beside its path; see `Route`."""

    answers: tuple[RouteAnswer, ...]
    moving: frozenset[str]
    errors: tuple[HTTPStatus, ...]
    parameters: tuple[Parameter[Any], ...]
    body: type[BaseModel]
    body_required: bool
    takes_cloud_events: bool
    anonymous: bool
    only_reads: bool
    for_callers: bool
    for_operators: bool
    act: Act
    source: str


class Routes:
    """The routes of one part of the API.

    A function takes, by name and in any order, what it needs of: `req`, the request; `hub`, the durable
    client's configuration; `query`, a `Query`; `body`, validated by the declared model; `who`, the
    `Caller`; and the parameters of its path.
    """

    def __init__(self, tag: str, refusals: Refusals | None = None) -> None:
        self.table: list[Route] = []
        self._tag = tag
        self._refusals = dict(refusals or {})

    def get(self, path: str, **declared: Unpack[Declaration]) -> Callable[[RouteFunction], RouteAnswering]:
        return self._declare_route("GET", path, declared)

    def post(self, path: str, **declared: Unpack[Declaration]) -> Callable[[RouteFunction], RouteAnswering]:
        return self._declare_route("POST", path, declared)

    def delete(self, path: str, **declared: Unpack[Declaration]) -> Callable[[RouteFunction], RouteAnswering]:
        return self._declare_route("DELETE", path, declared)

    def _declare_route(
        self, method: Verb, path: str, declared: Declaration
    ) -> Callable[[RouteFunction], RouteAnswering]:
        def register(function: RouteFunction) -> RouteAnswering:
            description = inspect.getdoc(function) or ""
            signature = inspect.signature(function)
            names = signature.parameters.keys()
            if "answers" not in declared:
                declared["answers"] = _answers_of(signature.return_annotation)

            async def respond(req: func.HttpRequest, hub: TaskHub, in_path: InPath) -> func.HttpResponse:
                try:
                    arguments = _arguments(route, req, hub, in_path)
                    if "body" in names:
                        arguments["body"] = _checked_body(route, req)
                    answer = await function(**{name: arguments[name] for name in names})
                    if not isinstance(answer, func.HttpResponse):
                        answer = json_answer(answer, route.answers[0].status, moving=route.moving)
                    return _finished(route, arguments, answer)
                except Exception as error:
                    refusal = problem_of(error, self._refusals)
                    if refusal is None:
                        raise  # A defect of the app.
                    return refusal

            route = Route(
                function=getattr(function, "__name__", ""),
                method=method,
                path=path,
                tag=self._tag,
                summary=description.partition("\n")[0].removesuffix("."),
                description=description,
                respond=respond,
                **declared,
            )
            unknown = names - {"req", "hub", "query", "body", "who", *route.path_parameters}
            if unknown:
                raise TypeError(f"{route.function} takes {sorted(unknown)}, which its route does not give")
            self.table.append(route)
            return respond

        return register


def _answers_of(returned: Any) -> tuple[RouteAnswer, ...]:
    """Return what a route answers whose function returns a document."""
    if not issubclass(returned, BaseModel | JsonShape):
        raise TypeError(f"{returned} is no document: the route must declare its answers")
    return page(returned) if issubclass(returned, Page) else shown(returned)


def _arguments(route: Route, req: func.HttpRequest, hub: TaskHub, in_path: InPath) -> dict[str, Any]:
    who = _admitted_caller(route, req, in_path)
    return {**in_path, "req": req, "hub": hub, "who": who, "query": read_query(route.parameters, req.params)}


def _finished(route: Route, arguments: Mapping[str, Any], response: func.HttpResponse) -> func.HttpResponse:
    if route.act is not None and response.status_code < INVALID:
        report_act(route.act, arguments, next(map(arguments.get, route.path_parameters), None), response)
    if route.is_conditional:
        return unless_known(response, header(arguments["req"], IF_NONE_MATCH.name))
    return response


def _admitted_caller(route: Route, request: func.HttpRequest, in_path: InPath) -> Caller:
    """Return the caller of a route; a named caller that changes something is logged."""
    if route.anonymous:
        return ANYBODY
    who = caller_of(request)
    if who.role not in route.roles:
        raise ForbiddenError(who.name, who.role, route.roles)
    if who.known_name is not None and route.changes:
        _log.info("%s called %s of %s", who.name, route.function, dict(in_path) or route.path)
    return who


def _checked_body(route: Route, request: func.HttpRequest) -> BaseModel:
    if route.body is None:
        raise TypeError(f"{route.function} takes a body, and its route declares none")
    is_absent = not route.body_required and not request.get_body().strip()
    check = partial(validated, route.body)
    return check({}) if is_absent else read_body(request, check)
