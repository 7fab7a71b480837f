"""The body of a submission: the call or the handler, and how it is to be carried out.

Bodies are strict: no unknown field, no silent conversion. Every mistake is reported at once, each with its
JSON pointer.
"""

from collections.abc import Iterable, Iterator, KeysView, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from typing import Annotated, Any, ClassVar, Final, Literal, Protocol, runtime_checkable

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationInfo,
)

from durable_retry.base.names import PriorityName
from durable_retry.base.validation import (
    HeaderName,
    HeaderValue,
    InstantText,
    InvalidInputError,
    Key,
    Label,
    Problem,
    RelativePath,
    ResourceName,
    Seconds,
    Strict,
    header_id,
    refuse,
    validated,
    with_example,
)
from durable_retry.plugins import plugins
from durable_retry.rules.config.dependency import Dependency, Targets
from durable_retry.rules.retry.policy import RetryOverride
from durable_retry.runtime.deferred import imported

_UNSAFE_METHODS: Final = frozenset({"POST", "PATCH"})
"""Methods that are not idempotent by themselves (RFC 9110 section 9.2.2, RFC 5789)."""


def is_unprotected(method: str, idempotency_header: str) -> bool:
    """Return whether repeating a request could do its work twice; "" means that no header prevents it."""
    return method.upper() in _UNSAFE_METHODS and idempotency_header == ""


MAX_HEADERS: Final = 64
MAX_QUERY_NAMES: Final = 128
MAX_TEXT_CHARS: Final = 1_048_576

type Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def _query_value(value: Any) -> Any:
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str | int | float) for item in items):
        raise refuse("must be a string, a number, true, false, or a list of these")
    return value


def _in_capitals(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


def _each_once(headers: dict[str, str]) -> dict[str, str]:
    if len(set(map(header_id, headers))) < len(headers):
        raise refuse("holds one name twice, in different case or with _ for -")
    return headers


def _without_body(value: Any, info: ValidationInfo) -> Any:
    if info.data.get("body") is not None:
        raise refuse("cannot stand beside body: one of them")
    return value


class HttpCall(Strict):
    """The request to a dependency.

    Attributes:
        method: In capitals; POST unless given.
        path: Below the dependency's base_url.
        query: Parameters; a list repeats its name.
        headers: In addition to those of the dependency; names in any case.
        body: Text instead of `json`.
        body_json: The field `json`; absent and null differ, see `has_json`.
    """

    method: Annotated[Method, BeforeValidator(_in_capitals)] = "POST"
    path: RelativePath = ""
    query: Annotated[
        dict[str, Annotated[Any, AfterValidator(_query_value)]], Field(max_length=MAX_QUERY_NAMES)
    ] = Field(default_factory=dict)
    headers: Annotated[
        dict[HeaderName, HeaderValue], Field(max_length=MAX_HEADERS), AfterValidator(_each_once)
    ] = Field(default_factory=dict)
    body: Annotated[str, Field(max_length=MAX_TEXT_CHARS)] | None = None
    body_json: Annotated[Any, AfterValidator(_without_body)] = Field(default=None, alias="json")

    @property
    def has_json(self) -> bool:
        """Whether `json` was given, null included."""
        return "body_json" in self.model_fields_set

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


@dataclass(frozen=True, slots=True)
class Part:
    """What an operation keeps of a feature's members."""

    document: Mapping[str, Any]  # JSON
    start_at: datetime | None = None  # when the operation begins for its sake; None leaves that to others


@runtime_checkable
class FollowUp(Protocol):
    """A message that a feature sends after an operation, such as an `Event`."""

    def to_json(self) -> dict[str, Any]:
        """Return its JSON form."""

    def unmet(self, pointer: str, targets: Targets) -> Iterator[Problem]:
        """Check it against what is configured; the pointer is its place."""


class Members:
    """The members that a feature adds to the body of an operation."""

    model: ClassVar[type[Strict]] = Strict
    """The members, each with a default; none where the feature has keys of a dependency alone."""

    @cached_property
    def names(self) -> KeysView[str]:
        """The names of the members."""
        return self.model.model_fields.keys()

    def part_of(
        self,
        members: Any,  # noqa: ARG002
        target: str,  # noqa: ARG002
        dependency: Dependency,  # noqa: ARG002
        now: datetime,  # noqa: ARG002
    ) -> Part | None:
        """Return what an operation keeps for the feature; None for nothing.

        Args:
            members: A `model`; None where the operation gives no member, but its dependency has keys of the
                feature, in `of_features`.
            target: See `OperationRequest.target_at`.
        """
        return None

    def part_of_replay(self, part: Mapping[str, Any]) -> Mapping[str, Any] | None:  # noqa: ARG002
        """Return what the replay of an operation keeps of its part; None for nothing."""
        return None

    def part_of_unclear(
        self,
        dependency: Dependency,  # noqa: ARG002
        since: datetime,  # noqa: ARG002
        attempt: int | None,  # noqa: ARG002
    ) -> Mapping[str, Any] | None:
        """Return what the replay of an operation keeps if it is not known whether an attempt took effect.

        Called where its dependency has keys of the feature; None leaves it to `part_of_replay`.

        Args:
            since: When its latest attempt had ended.
            attempt: The number of that attempt; None where it is not known.
        """
        return None

    def problems(self, document: Mapping[str, Any]) -> Iterable[Problem]:  # noqa: ARG002
        """Check what the members say together, and with others; the document has one of them at least."""
        return ()

    def unmet(
        self,
        members: Any,  # noqa: ARG002
        request: "OperationRequest",  # noqa: ARG002
        targets: Targets,  # noqa: ARG002
    ) -> Iterable[Problem]:
        """Check the members of a request, a `model`, against what is configured."""
        return ()

    def unmet_keys(self, dependency: Dependency, targets: Targets) -> Iterable[Problem]:  # noqa: ARG002
        """Check the keys of a dependency, which has some of the feature, against what is configured."""
        return ()

    def misfits(self, request: "OperationRequest", dependency: Dependency) -> Iterable[Problem]:  # noqa: ARG002
        """Check a request against the keys of its dependency, which has some of the feature."""
        return ()

    def read_at(self, part: Mapping[str, Any]) -> Iterable[str]:  # noqa: ARG002
        """Return JSON pointers into the result of an attempt, to what the orchestration reads of it."""
        return ()

    def commits(self, part: Mapping[str, Any], *, is_recovered: bool) -> bool:  # noqa: ARG002
        """Whether something of a part is committed with a success, or with one after trouble."""
        return True

    def of_part(self, part: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG002
        """Return the members that the replay of an operation has of its part."""
        return {}


@cache
def members_by_feature() -> Mapping[str, Members]:
    """Return what each feature adds, by the feature's name."""
    return {plugin.name: imported(plugin.members) for plugin in plugins() if plugin.members}


def members_at(dependency: Dependency) -> Iterator[tuple[str, Members]]:
    """Yield the members of each feature that a dependency has keys of, with the feature's name."""
    known = members_by_feature()
    yield from ((name, known[name]) for name in dependency.of_features if name in known)


def unmet_keys(dependency: Dependency, targets: Targets) -> Iterator[Problem]:
    """Check the keys that a dependency has of features against what is configured."""
    for _, members in members_at(dependency):
        yield from members.unmet_keys(dependency, targets)


def split_members(document: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Mapping[str, Any]]]:
    """Return a body without the members of features, and those that it has of each, by the feature's name."""
    by_feature: dict[str, Mapping[str, Any]] = {
        name: {key: document[key] for key in members.names if key in document}
        for name, members in members_by_feature().items()
        if not members.names.isdisjoint(document)
    }
    if not by_feature:
        return document, by_feature
    taken = {key for members in by_feature.values() for key in members}
    return {key: value for key, value in document.items() if key not in taken}, by_feature


class OperationRequest(Strict):
    """The body of `POST /api/operations`.

    Attributes:
        dependency: With `request`: the call to make.
        request: See `HttpCall`.
        handler: With `input`: the Python handler to run.
        input: Any JSON.
        key: 1 to 255 visible ASCII characters; None when not given.
        correlation_id: The caller's name for the wider piece of work.
        deadline_seconds: For the whole operation, from its start; 0 means none; None takes the dependency's.
        start_at: When it begins, at most a year ahead; one that has passed means at once.
        delay_seconds: Begin so much after it was accepted, in place of `start_at`.
        priority: Who goes first where operations wait for a limit, the retry budget or a circuit that closes;
            None takes that of the handler or the dependency.
        limit_key: Whose share of the dependency's limits it uses, such as a customer; 1 to 255 characters.
        retry: Changes to the dependency's policy, see `rules.retry.policy.override_problems`.
    """

    model_config = with_example(
        dependency="payments",
        request={"method": "POST", "path": "/charges", "json": {"amount": 5}},
        key="evt-1",
        correlation_id="order-42",
    )

    dependency: ResourceName | None = None
    request: HttpCall | None = None
    handler: ResourceName | None = None
    input: Any = None
    key: Key | None = None
    correlation_id: Label | None = None
    deadline_seconds: Seconds | None = None
    start_at: InstantText | None = None
    delay_seconds: Seconds | None = None
    priority: PriorityName | None = None
    limit_key: Label | None = None
    retry: RetryOverride | None = None

    # By the names of features, their members of the body.
    _of_features: dict[str, Strict] = PrivateAttr(default_factory=dict)

    @property
    def of_features(self) -> dict[str, Strict]:
        """What the body has of features, by their names: each one's members, by its own model."""
        return self._of_features

    def unmet_members(self, targets: Targets) -> Iterator[Problem]:
        """Check the members of features against what is configured."""
        for name, members in self._of_features.items():
            yield from members_by_feature()[name].unmet(members, self, targets)

    def misfits(self, dependency: Dependency, targets: Targets) -> Iterator[Problem]:
        """Check it against the keys that its dependency has of features, and its own members of them."""
        for _, members in members_at(dependency):
            yield from members.misfits(self, dependency)
        yield from self.unmet_members(targets)

    def target_at(self, dependency: Dependency) -> str:
        """Return `handler` with its name, or `dependency` with the first one: a new name is the same."""
        return f"dependency {dependency.names[0]}" if self.handler is None else f"handler {self.handler}"


def parse_operation(document: Any) -> OperationRequest:
    """Validate the body of an operation; InvalidInputError with every mistake and its JSON pointer.

    The body was read by `documents.read_checked`, or has passed the same checks.
    """
    own, by_feature = split_members(document) if isinstance(document, dict) else (document, {})
    # Reported together with the problems of the fields, so that a caller repairs everything at once.
    problems = _shape_problems(document, by_feature)
    read, request = dict[str, Strict](), None
    try:
        request = validated(OperationRequest, own)
    except InvalidInputError as error:
        problems += error.problems
    for name, members in by_feature.items():
        try:
            read[name] = validated(members_by_feature()[name].model, members)
        except InvalidInputError as error:
            problems += error.problems
    if request is None or problems:
        raise InvalidInputError(problems)
    request.of_features.update(read)
    return request


def _shape_problems(document: Any, features: Iterable[str]) -> list[Problem]:
    """Check what several members say together, such as that the body has exactly one of its two forms.

    Args:
        features: The names of the features that it has members of.
    """
    if not isinstance(document, dict):
        return []
    of_features = (problem for name in features for problem in members_by_feature()[name].problems(document))
    return [
        *_form_problems(document),
        *_start_problems(document),
        *of_features,
    ]


def _start_problems(document: Mapping[str, Any]) -> Iterator[Problem]:
    if document.get("start_at") is not None and document.get("delay_seconds") is not None:
        yield Problem("/delay_seconds", "cannot stand beside start_at: one of them says when it begins")


def _form_problems(document: Mapping[str, Any]) -> list[Problem]:
    present = {name for name in ("dependency", "request", "handler") if document.get(name) is not None}
    if "handler" in present:
        return [
            Problem(f"/{name}", "cannot stand beside handler: an operation has one of the two forms")
            for name in sorted(present - {"handler"})
        ]
    if not present:
        return [Problem("", "needs dependency and request, or handler and input")]
    problems = [Problem(f"/{name}", "is required") for name in sorted({"dependency", "request"} - present)]
    if "input" in document:
        problems.append(Problem("/input", "belongs to a handler"))
    return problems
