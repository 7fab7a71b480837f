"""The OpenAPI 3.1 document, made from the declared routes and the models.

The docstrings of functions and models are its descriptions.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from inspect import cleandoc
from typing import Any, Final, override

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonRef, JsonSchemaMode, JsonSchemaValue

from durable_retry.base.answers import Answer, ProblemDocument
from durable_retry.base.json_forms import JsonShape
from durable_retry.base.validation import Problem, Strict
from durable_retry.features.openapi.descriptions import (
    PATH_PARAMETERS,
    TAGS,
    Examples,
    with_members_described,
)
from durable_retry.http.answers import INVALID as INVALID_TYPE
from durable_retry.http.answers import NO_TYPE
from durable_retry.http.parameters import IF_NONE_MATCH, Parameter
from durable_retry.http.routes import (
    AWAY,
    CONFLICT,
    FORBIDDEN,
    INVALID,
    KEY_REUSED,
    MISSING,
    NOT_MODIFIED,
    OK,
    TOO_LARGE,
    UNAUTHORIZED,
    AnswerModel,
    Route,
    RouteAnswer,
)
from durable_retry.rules.config.dependency import Dependency, models_of_features
from durable_retry.rules.operations.request import OperationRequest, members_by_feature

_CLOUD_EVENT: Final = "application/cloudevents+json"
_REF: Final = "#/components/schemas/{model}"
_OPERATION: Final = {"$ref": _REF.format(model="OperationRequest")}

LEFT_OPEN: Final = (
    ("BatchRequest", ("properties", "items", "items")),
    ("StepRequest", ("properties", "operation")),
    ("StepRequest", ("properties", "compensation", "anyOf", 0)),
)
"""Where a model takes any object, because the operation there is validated by itself."""

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
    UNAUTHORIZED: (
        "There is no key, it is nobody's, or there are several; `type` ends in `/unauthorized`. What the "
        "host refuses has no body."
    ),
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
    "Warning": ("`Prefer` asked for a wait that cannot be read, so it was ignored.", {"type": "string"}),
}

_SECURITY: Final = {
    "key": {"type": "apiKey", "in": "header", "name": "x-functions-key"},
    "code": {"type": "apiKey", "in": "query", "name": "code"},
}
_NOT_MODIFIED: Final = RouteAnswer(
    NOT_MODIFIED, "It says what the version that was named says.", headers=("ETag",), media_type=""
)


def openapi_document(routes: Iterable[Route], version: str, prefix: str) -> dict[str, Any]:
    """Return the OpenAPI document."""
    listed = list(routes)
    schemas = _component_schemas(listed)
    examples = Examples(schemas)
    paths: dict[str, dict[str, Any]] = {}
    for route in listed:
        path = f"{prefix}/{route.path.replace('{*', '{')}"
        paths.setdefault(path, {})[route.method.lower()] = _operation_object(route, examples)
    return {
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {"title": "Durable Retry", "version": version, "description": _DESCRIPTION},
        "servers": [{"url": "/", "description": "The host that answers with this document."}],
        "tags": [
            {"name": tag, "description": TAGS[tag]} for tag in dict.fromkeys(route.tag for route in listed)
        ],
        "security": [{name: []} for name in _SECURITY],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": _SECURITY},
    }


def _answer_models(routes: Iterable[Route]) -> Iterator[AnswerModel]:
    yield ProblemDocument
    for route in routes:
        yield from (answer.model for answer in route.answers if answer.model is not None)


class _Schemas(GenerateJsonSchema):
    """An answer has every member, also one with a default; only members with an `exclude_if` may be left out.

    What callers send has the same schema in an answer.
    """

    _is_sent = False

    _completed: frozenset[type] = frozenset()

    @override
    def generate_inner(self, schema: Any) -> JsonSchemaValue:
        cls = schema.get("cls")
        if cls is Dependency:  # Its serializer returns any mapping, which would say nothing of the keys.
            schema = {key: part for key, part in schema.items() if key != "serialization"}
        described = super().generate_inner(schema)
        if cls in _WITH_FEATURES.keys() - self._completed:
            self._completed |= {cls}
            _WITH_FEATURES[cls](self, self._whole(described))
        return described

    def _whole(self, described: JsonSchemaValue) -> dict[str, Any]:
        return self.get_schema_from_definitions(JsonRef(described["$ref"])) or {}

    def add_keys(self, whole: dict[str, Any]) -> None:
        """Describe the keys of features among those of a dependency."""
        for model in models_of_features().values():
            own = self._whole(self.generate_inner(model.__pydantic_core_schema__))
            for key, shape in own["properties"].items():
                own_shape = whole["properties"].get(key)
                whole["properties"][key] = shape if own_shape is None else {"anyOf": [own_shape, shape]}
            _, _, attributes = own["description"].partition("Attributes:\n")
            whole["description"] = f"{whole['description']}\n{attributes}"

    def add_members(self, whole: dict[str, Any]) -> None:
        """Describe the members of features among those of an operation."""
        for members in members_by_feature().values():
            own = self._whole(self.generate_inner(members.model.__pydantic_core_schema__))
            whole["properties"] |= own.get("properties", {})
            whole["examples"] = [whole["examples"][0] | example for example in own.get("examples", [{}])]

    @override
    def model_schema(self, schema: Any) -> dict[str, Any]:
        outer, self._is_sent = self._is_sent, issubclass(schema["cls"], Strict)
        described = super().model_schema(schema)
        self._is_sent = outer
        return described

    @override
    def field_is_required(self, field: Any, total: bool) -> bool:
        # The fields of a `TypedDict` say it themselves.
        if self.mode == "serialization" and field["type"] != "typed-dict-field" and not self._is_sent:
            return "serialization_exclude_if" not in field
        return super().field_is_required(field, total)

    @override
    def normalize_name(self, name: str) -> str:
        return super().normalize_name(re.sub(r"Page\[(\w+?)(Document)?\]", r"\1Page", name))


_WITH_FEATURES: Final = {Dependency: _Schemas.add_keys, OperationRequest: _Schemas.add_members}
"""Classes to whose members features add theirs."""


def _component_schemas(routes: Iterable[Route]) -> dict[str, Any]:
    bodies = dict.fromkeys(route.body for route in routes if route.body is not None)
    answers = dict.fromkeys(model for model in _answer_models(routes) if model not in bodies)
    _, generated = TypeAdapter.json_schemas(
        [(model.__name__, _schema_mode_of(model), TypeAdapter[Any](model)) for model in (*bodies, *answers)],
        ref_template=_REF,
        schema_generator=_Schemas,
    )
    # Models of features are left out: their properties are in the schemas to which they are added.
    models = [*models_of_features().values(), *(members.model for members in members_by_feature().values())]
    added = {model.__name__ for model in models}
    schemas: dict[str, Any] = {name: made for name, made in generated["$defs"].items() if name not in added}
    for name, path in LEFT_OPEN:
        if name in schemas:
            _replace_schema(schemas[name], path, _OPERATION)
    return {
        name: with_members_described(name, with_described_properties(schema))
        for name, schema in schemas.items()
    }


def _schema_mode_of(model: AnswerModel) -> JsonSchemaMode:
    return "serialization" if issubclass(model, Answer | JsonShape) else "validation"


def _replace_schema(schema: Any, path: tuple[str | int, ...], value: Mapping[str, Any]) -> None:
    *outer, last = path
    for part in outer:
        schema = schema[part]
    schema[last] = {**value, **{key: schema[last][key] for key in ("description",) if key in schema[last]}}


def _operation_object(route: Route, examples: Examples) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.function,
        "tags": [route.tag],
        "summary": route.summary,
        "description": route.description,
        "parameters": [
            *map(_path_parameter, route.path_parameters),
            *map(_parameter_object, route.parameters),
        ],
        "responses": dict(sorted(_response_objects(route, examples))),
    }
    if route.body is not None:
        example = examples.of(route.body.__name__)
        content: dict[str, Any] = {
            "application/json": {"schema": _schema_reference(route.body), "example": example}
        }
        operation["requestBody"] = {"required": route.body_required, "content": content}
        if route.takes_cloud_events:
            event = {"specversion": "1.0", "id": "1", "source": "/orders", "type": "order.placed"}
            schema = _cloud_event_with(route.body)
            content[_CLOUD_EVENT] = {"schema": schema, "example": event | {"data": example}}
            operation["requestBody"]["description"] = _BINARY_CLOUD_EVENT
    if route.is_conditional:
        operation["parameters"].append(_parameter_object(IF_NONE_MATCH))
    if route.anonymous:
        operation["security"] = []
    return operation


def _response_objects(route: Route, examples: Examples) -> Iterator[tuple[str, dict[str, Any]]]:
    for answer in route.answers:
        headers = (
            (*answer.headers, "ETag") if route.is_conditional and answer.status is OK else answer.headers
        )
        yield str(answer.status.value), _response_object(answer, headers, examples)
    if route.is_conditional:
        yield str(NOT_MODIFIED.value), _response_object(_NOT_MODIFIED, _NOT_MODIFIED.headers, examples)
    for status in route.problems:
        yield str(status.value), _problem_response(status)


def _response_object(answer: RouteAnswer, headers: Iterable[str], examples: Examples) -> dict[str, Any]:
    is_json = answer.media_type == "application/json"
    schema = (
        _schema_reference(answer.model) if answer.model is not None else {"type": "object"} if is_json else {}
    )
    response: dict[str, Any] = {"description": answer.description, "headers": _header_objects(headers)}
    if answer.media_type:
        example = {} if answer.model is None else {"example": examples.of(answer.model.__name__)}
        response["content"] = {answer.media_type: {"schema": schema, **example}}
    return response


def _problem_example(
    status: HTTPStatus, detail: str, type_: str = NO_TYPE, *errors: Problem
) -> dict[str, Any]:
    return ProblemDocument(
        type=type_, title=status.phrase, status=status.value, detail=detail, errors=errors
    ).to_json()


_INVALID_EXAMPLE: Final = _problem_example(
    INVALID,
    "The input has 2 mistakes.",
    INVALID_TYPE,
    Problem("/retry/max_attempts", "may be at most 5, the limit of the dependency"),
    Problem("/dependency", 'no dependency has the name payment; did you mean "payments"?'),
)


def _problem_response(status: HTTPStatus) -> dict[str, Any]:
    example = _INVALID_EXAMPLE if status is INVALID else _problem_example(status, PROBLEMS[status])
    content = {"application/problem+json": {"schema": _schema_reference(ProblemDocument), "example": example}}
    headers = ("Retry-After",) if status is HTTPStatus.SERVICE_UNAVAILABLE else ()
    return {"description": PROBLEMS[status], "headers": _header_objects(headers), "content": content}


def _header_objects(names: Iterable[str]) -> dict[str, Any]:
    return {name: {"description": HEADERS[name][0], "schema": dict(HEADERS[name][1])} for name in names}


def _path_parameter(name: str) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1}
    described = {"description": PATH_PARAMETERS[name], "schema": schema}
    return {"name": name, "in": "path", "required": True, **described}


def _parameter_object(parameter: Parameter[Any]) -> dict[str, Any]:
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
    properties = {**attributes, "correlationid": text, "data": _schema_reference(model)}
    return {"type": "object", "required": [*attributes, "data"], "properties": properties}


def _schema_reference(model: AnswerModel) -> dict[str, str]:
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
        name: {**shape, "description": named[name]} if name in named else shape
        for name, shape in schema["properties"].items()
    }
    return {**schema, "description": text, "properties": properties}
