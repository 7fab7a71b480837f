"""HTTP: every route of the API, and the OpenAPI 3.1 document that describes them.

The document is made from the declared routes and the models. The docstrings of functions and models are its
descriptions.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from http import HTTPStatus
from inspect import cleandoc
from typing import Any, Final

import azure.functions as func
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from durable_retry.engine.base.names import QUEUE_SOURCE
from durable_retry.settings.configuration import api_path, app_settings
from durable_retry.triggers.http import (
    alerts,
    bulk_actions,
    circuits,
    dashboard,
    dead_letters,
    dependencies,
    metrics,
    operations,
    outbox,
    overview,
    replays,
    search,
    submissions,
    workflows,
)
from durable_retry.triggers.http.answers import json_answer
from durable_retry.triggers.http.documents import ProblemDocument
from durable_retry.triggers.http.parameters import IF_NONE_MATCH, Parameter
from durable_retry.triggers.http.routes import (
    AWAY,
    CONFLICT,
    FORBIDDEN,
    INVALID,
    KEY_REUSED,
    MISSING,
    NOT_MODIFIED,
    OK,
    TOO_LARGE,
    Route,
    RouteAnswer,
    Routes,
)

VERSION: Final = "0.1.0"

routes = Routes("the app")

ALL: Final = (
    submissions.routes,
    operations.routes,
    workflows.batch_routes,
    workflows.saga_routes,
    dependencies.routes,
    circuits.routes,
    metrics.routes,
    dead_letters.routes,
    replays.routes,
    search.routes,
    outbox.routes,
    overview.routes,
    bulk_actions.routes,
    alerts.routes,
    dashboard.routes,
    routes,
)


def table() -> list[Route]:
    """Return every declared route that this app has."""
    return [route for each in ALL for route in each.table if has_route(route.function)]


def has_route(function: str) -> bool:
    """Whether this app has a route, by the name of its function: the queue's needs the queue's source."""
    return function != submissions.ENQUEUE or app_settings().registration.wants(QUEUE_SOURCE)


_REF: Final = "#/components/schemas/{model}"
_OPERATION: Final = {"$ref": _REF.format(model="OperationRequest")}

LEFT_OPEN: Final = (
    ("BatchRequest", ("properties", "items", "items")),
    ("StepRequest", ("properties", "operation")),
    ("StepRequest", ("properties", "compensation", "anyOf", 0)),
)
"""What a model takes as it comes, because each is validated by itself: an operation."""

_DESCRIPTION: Final = (
    "Operations on downstream services, retried durably until they succeed, are cancelled, or are put before "
    "a person as dead letters. Errors are problem documents (RFC 9457). Lists answer `items` and "
    "`next_cursor`. Answers may gain fields."
)

_BINARY_CLOUD_EVENT: Final = (
    "A CloudEvent is taken in both of its HTTP forms. In the structured one it is the body, sent as "
    "application/cloudevents+json or application/json. In the binary one the headers `ce-specversion`, "
    "`ce-id`, `ce-source` and `ce-type` are the event, and the body is the operation."
)

PROBLEMS: Final[Mapping[HTTPStatus, str]] = {
    INVALID: "What was sent does not validate; `errors` lists every mistake with its pointer.",
    FORBIDDEN: "The caller's role does not allow it; `type` ends in `/forbidden`.",
    MISSING: "There is no such thing.",
    CONFLICT: "The state of the thing does not allow it.",
    TOO_LARGE: "The body is over the limit.",
    KEY_REUSED: "The key belongs to another request; `type` ends in `/idempotency-key-reused`.",
    AWAY: (
        "A part that the app needs did not answer: `type` ends in `/task-hub-unavailable` or in "
        "`/storage-unavailable`. Send the same request again."
    ),
}

HEADERS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "Location": ("Where its status is.", {"type": "string"}),
    "Retry-After": ("Seconds after which to look, or to send it again.", {"type": "string"}),
    "ETag": ("Of this version, weak: send it back as `If-None-Match`.", {"type": "string"}),
    "Idempotent-Replayed": ("The key was used before: nothing was started.", {"const": "true"}),
    "Preference-Applied": ("The wait that was granted.", {"type": "string"}),
}

_SECURITY: Final = {
    "key": {"type": "apiKey", "in": "header", "name": "x-functions-key"},
    "code": {"type": "apiKey", "in": "query", "name": "code"},
}
_NOT_MODIFIED: Final = RouteAnswer(
    NOT_MODIFIED, "It says what the version that was named says.", headers=("ETag",), media_type=""
)
_NO_KEY: Final = {"description": "The key is missing or wrong. The host's own answer, without a body."}


def _document(routes: Iterable[Route], version: str, prefix: str) -> dict[str, Any]:
    """Return the OpenAPI document.

    Args:
        routes: The whole table.
        version: Of the API.
        prefix: Path of the API, such as `/api`.
    """
    listed = list(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in listed:
        path = f"{prefix}/{route.path.replace('{*', '{')}"
        paths.setdefault(path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {"title": "Durable Retry", "version": version, "description": _DESCRIPTION},
        "tags": [{"name": tag} for tag in dict.fromkeys(route.tag for route in listed)],
        "security": [{name: []} for name in _SECURITY],
        "paths": paths,
        "components": {"schemas": _schemas(listed), "securitySchemes": _SECURITY},
    }


def _answer_models(routes: Iterable[Route]) -> Iterator[type[BaseModel]]:
    yield ProblemDocument
    for route in routes:
        yield from (answer.model for answer in route.answers if answer.model is not None)


def _schemas(routes: Iterable[Route]) -> dict[str, Any]:
    bodies = dict.fromkeys(route.body for route in routes if route.body is not None)
    answers = dict.fromkeys(model for model in _answer_models(routes) if model not in bodies)
    _, found = models_json_schema([(model, "validation") for model in (*bodies, *answers)], ref_template=_REF)
    schemas: dict[str, Any] = found["$defs"]
    for name, path in LEFT_OPEN:
        _replace(schemas[name], path, _OPERATION)
    return {name: with_described_properties(schema) for name, schema in schemas.items()}


def _replace(schema: Any, path: tuple[str | int, ...], value: Mapping[str, Any]) -> None:
    *outer, last = path
    for part in outer:
        schema = schema[part]
    schema[last] = {**value, **{key: schema[last][key] for key in ("description",) if key in schema[last]}}


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.function,
        "tags": [route.tag],
        "summary": route.summary,
        "parameters": [*map(_path_parameter, route.path_parameters), *map(_parameter, route.parameters)],
        "responses": dict(sorted(_responses(route))),
    }
    if route.body is not None:
        content: dict[str, Any] = {"application/json": {"schema": _ref(route.body)}}
        operation["requestBody"] = {"required": route.body_required, "content": content}
        if route.takes_cloud_events:
            content["application/cloudevents+json"] = {"schema": _cloud_event_with(route.body)}
            operation["requestBody"]["description"] = _BINARY_CLOUD_EVENT
    if route.is_conditional:
        operation["parameters"].append(_parameter(IF_NONE_MATCH))
    if route.anonymous:
        operation["security"] = []
    return operation


def _responses(route: Route) -> Iterator[tuple[str, dict[str, Any]]]:
    for answer in route.answers:
        headers = (
            (*answer.headers, "ETag") if route.is_conditional and answer.status is OK else answer.headers
        )
        yield str(answer.status.value), _response(answer, headers)
    if route.is_conditional:
        yield str(NOT_MODIFIED.value), _response(_NOT_MODIFIED, _NOT_MODIFIED.headers)
    for status in route.problems:
        yield str(status.value), _problem(status)
    if not route.anonymous:
        yield str(HTTPStatus.UNAUTHORIZED.value), _NO_KEY


def _response(answer: RouteAnswer, headers: Iterable[str]) -> dict[str, Any]:
    is_json = answer.media_type == "application/json"
    schema = _ref(answer.model) if answer.model is not None else {"type": "object"} if is_json else {}
    response: dict[str, Any] = {"description": answer.description, "headers": _headers(headers)}
    if answer.media_type:
        response["content"] = {answer.media_type: {"schema": schema}}
    return response


def _problem(status: HTTPStatus) -> dict[str, Any]:
    content = {"application/problem+json": {"schema": _ref(ProblemDocument)}}
    headers = ("Retry-After",) if status is HTTPStatus.SERVICE_UNAVAILABLE else ()
    return {"description": PROBLEMS[status], "headers": _headers(headers), "content": content}


def _headers(names: Iterable[str]) -> dict[str, Any]:
    return {name: {"description": HEADERS[name][0], "schema": dict(HEADERS[name][1])} for name in names}


def _path_parameter(name: str) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _parameter(parameter: Parameter[Any]) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": False,
        "description": parameter.description,
        "schema": dict(parameter.schema),
    }


def _cloud_event_with(model: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of a CloudEvent 1.0 in its structured form; its source and id are the key."""
    text = {"type": "string", "minLength": 1}
    attributes = {"specversion": {"const": "1.0"}, "id": text, "source": text, "type": text}
    properties = {**attributes, "correlationid": text, "data": _ref(model)}
    return {"type": "object", "required": [*attributes, "data"], "properties": properties}


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REF.format(model=model.__name__)}


_ATTRIBUTE: Final = re.compile(r"^    (\w+): (.*(?:\n        .*)*)", re.MULTILINE)
_OTHER_NAMES: Final = {"body_json": "json"}


def with_described_properties(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model's schema with the `Attributes:` of its description moved to the properties."""
    text, mark, attributes = cleandoc(schema.get("description", "")).partition("\n\nAttributes:\n")
    if not mark:
        return dict(schema)
    texts = {name: " ".join(words.split()) for name, words in _ATTRIBUTE.findall(attributes)}
    named = {_OTHER_NAMES.get(name, name): words for name, words in texts.items()}
    properties = {
        name: {**each, "description": named[name]} if name in named else each
        for name, each in schema["properties"].items()
    }
    return {**schema, "description": text, "properties": properties}


@cache
def described() -> dict[str, Any]:
    """Return the OpenAPI document, made once per process."""
    return _document(table(), VERSION, api_path())


@routes.get("openapi.json", answers=(RouteAnswer(OK, "OpenAPI 3.1."),), anonymous=True)
async def get_openapi() -> func.HttpResponse:
    """This document."""
    return json_answer(described())
