"""One downstream service: its address, how it is called and retried, what signs its webhooks, and its tables.

`Targets` are all that the operations of an app may name: its dependencies and its handlers.

    InvalidInputError
    └── UnknownTargetError      this app has no such dependency or handler

`GET /api/dependencies` answers with the dependencies themselves: every secret is written as its mask.
`defaults_table()` and `dependency_table()` are the models of the tables in dependencies.toml; they refuse
mistakes.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from math import inf
from typing import Annotated, Any, Final, Literal, Protocol
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    InstanceOf,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    Tag,
    ValidationInfo,
    WithJsonSchema,
    create_model,
    model_serializer,
)

from durable_retry.base.masking import Masking
from durable_retry.base.names import PriorityName
from durable_retry.base.signatures import WebhookSecretError, signing_key
from durable_retry.base.text import MASK, Secret
from durable_retry.base.validation import (
    MAX_SECONDS,
    TAGS,
    InvalidInputError,
    Problem,
    Strict,
    answer_header_problem,
    checked,
    config_header_problem,
    did_you_mean,
    header_id,
    header_value_problem,
    pointer_problem,
    refuse,
    table_of,
    validated,
)
from durable_retry.plugins import plugins
from durable_retry.rules.circuit.retry_budget import RetryBudgetSettings
from durable_retry.rules.circuit.states import CircuitSettings
from durable_retry.rules.retry.policy import RetryOverride, RetryPolicy, Timeouts
from durable_retry.rules.retry.rules import Rules
from durable_retry.runtime.deferred import imported

SecretText = Annotated[
    InstanceOf[Secret],
    PlainSerializer(lambda _secret: MASK, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string"}),
]
"""A secret: as JSON, which clients see, it is its mask."""


@dataclass(frozen=True, slots=True)
class Auth:
    """The header that authenticates the app, its value masked.

    Attributes:
        value: What it holds; None where a feature gives each request its own.
    """

    header: str
    value: SecretText | None


def _idempotency_header_problem(name: str) -> str | None:
    return None if name == "" else config_header_problem(name)


type Pointer = Annotated[str, checked(pointer_problem)]


@dataclass(frozen=True, slots=True)
class IdempotencySettings:
    """How repeated requests are recognised.

    Attributes:
        header: The header that the dependency deduplicates on; "" means none.
        ttl_seconds: How long the record of a finished operation is kept.
        fingerprint: JSON pointers to the parts of the request that its fingerprint covers; empty means all of
            it.
    """

    header: Annotated[str, checked(_idempotency_header_problem)] = "Idempotency-Key"
    ttl_seconds: Annotated[float, Field(ge=1, le=MAX_SECONDS)] = 86_400.0
    fingerprint: Annotated[tuple[Pointer, ...], Field(strict=False)] = ()


@dataclass(frozen=True, slots=True)
class Webhook:
    """What signs the events that are sent there, masked.

    Attributes:
        secrets: The newest first; empty means unsigned.
    """

    secrets: tuple[SecretText, ...] = ()


class Bounds(Strict):
    """Keys of a feature that bound the attempts at a dependency, fleet-wide."""

    @property
    def max_concurrency(self) -> int:
        """Attempts under way at once; 0 means no limit."""
        return 0

    @property
    def rate_per_second(self) -> float:
        """Attempts started per second; 0 means no limit."""
        return 0.0

    @property
    def is_on(self) -> bool:
        """Whether they bound anything."""
        return False

    @property
    def has_shares(self) -> bool:
        """Whether workers let some attempts start of their own accord."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """A named downstream service, its secrets masked.

    Attributes:
        name: The key in `dependencies.toml`.
        base_url: http or https, without a slash at the end; every path is below it. "" means that it takes no
            requests: the app's own functions call it.
        headers: Sent with every request; secret ones are masked.
        fixed_headers: Those that a request of a caller does not replace: secret, or from an app setting.
        auth: Sent with every request; None when there is none.
        timeouts: Time limits; an operation may bring its own deadline.
        retry: The policy, and the limit of what an operation may ask for.
        circuit: When its circuit opens.
        retry_budget: How many retries the whole fleet may make.
        idempotency: How repeated requests are recognised.
        classify: Status code or exception name to category, and rules on answers by their names; takes
            precedence over the built-in table.
        webhook: What signs the events that are sent there.
        masking: What people see of requests, inputs and errors.
        priority: The priority of operations that have none of their own.
        was: Its earlier names, the first one first: operations that wait, and dead letters, go on here.
        of_features: Its keys of features, by the features' names, each by its feature's model. Clients see
            these keys among the others.
        bounds: The keys of a feature that bound its attempts; None where nothing does.
        needs_admission: Whether an attempt needs more than a look at a freeze of everything before it starts:
            the circuit or the retry budget is on, or something bounds it.
        reserved_headers: What a request must not set, by `header_id`: credentials, the key, app settings.
    """

    name: str
    base_url: str = ""
    headers: Mapping[str, str | SecretText] = field(default_factory=dict)
    fixed_headers: Annotated[frozenset[str], Field(exclude=True)] = frozenset()
    auth: Auth | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    circuit: CircuitSettings = field(default_factory=CircuitSettings)
    retry_budget: RetryBudgetSettings = field(default_factory=RetryBudgetSettings)
    idempotency: IdempotencySettings = field(default_factory=IdempotencySettings)
    classify: Rules = field(default_factory=dict)
    webhook: Webhook = field(default_factory=Webhook)
    masking: Masking = field(default_factory=Masking)
    priority: PriorityName = "normal"
    was: tuple[str, ...] = ()
    of_features: Annotated[Mapping[str, Strict], Field(exclude=True)] = field(default_factory=dict)
    bounds: Annotated[Bounds | None, Field(exclude=True)] = field(init=False)
    needs_admission: Annotated[bool, Field(exclude=True)] = field(init=False)
    reserved_headers: Annotated[frozenset[str], Field(exclude=True)] = field(init=False)

    def __post_init__(self) -> None:
        keys = self.of_features.values()
        bounds = next((model for model in keys if isinstance(model, Bounds) and model.is_on), None)
        object.__setattr__(self, "bounds", bounds)
        needs = self.circuit.enabled or self.retry_budget.ratio > 0 or bounds is not None
        object.__setattr__(self, "needs_admission", needs)
        auth = () if self.auth is None else (self.auth.header,)
        names = (*self.fixed_headers, *auth, self.idempotency.header)
        object.__setattr__(self, "reserved_headers", frozenset(map(header_id, filter(None, names))))

    @property
    def names(self) -> tuple[str, ...]:
        """All that it has, or had, the first one first."""
        return (*self.was, self.name)

    def keys_of[Keys: Strict](self, feature: str, model: type[Keys]) -> Keys:
        """Return the keys that its table has of a feature, the others with their defaults."""
        keys = self.of_features.get(feature)
        return keys if isinstance(keys, model) else model()

    def with_more(self, **added: Any) -> "Dependency":
        """Return it with more of its keys of features; a key that no feature has is left out.

        Items are added at the end of its lists; other values replace its own.

        Raises:
            InvalidInputError: An item or a value cannot be there.
        """
        of_features = dict(self.of_features)
        for feature, model in models_of_features().items():
            keys = dict(self.keys_of(feature, model))
            more = {
                name: [*keys[name], *value] if isinstance(keys[name], list) else value
                for name, value in added.items()
                if name in keys
            }
            if more:
                of_features[feature] = validated(model, keys | more)
        return replace(self, of_features=of_features)

    @model_serializer(mode="wrap")
    def _with_keys_of_features(self, serialized: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document: dict[str, Any] = serialized(self)
        for feature, model in models_of_features().items():
            own = self.of_features.get(feature, model()).model_dump(mode="json")
            document |= {key: value for key, value in own.items() if value is not None or key not in document}
        return document


class UnknownTargetError(InvalidInputError):
    """The operation names a dependency or handler that this app does not have."""


class HandlerTarget(Protocol):
    """A function of the app that operations run, without what only its execution needs."""

    @property
    def dependency(self) -> str:
        """The name of the dependency whose policy and circuit it uses."""

    def check_input(self, document: Any) -> Any:
        """Return an input as the handler takes it.

        Raises:
            InvalidInputError: It does not fit; pointers begin with `/input`.
        """

    def read_result(self, value: Any) -> Any:
        """Return the value of a stored result as the handler's function returns it."""

    def limits_at(self, dependency: Dependency) -> Dependency:
        """Return its dependency with the policy and the time limit of the handler."""


@dataclass(frozen=True, slots=True)
class Targets:
    """What the operations of an app may name."""

    dependencies: Mapping[str, Dependency]  # those of `dependencies.toml`, by name
    handlers: Mapping[str, HandlerTarget]  # those that are registered, by name
    platform_queues: tuple[str, ...]  # prefixes of the queues that no event may go to
    earlier_names: Mapping[str, Dependency] = field(default_factory=dict)  # dependencies by their `was`

    def find_dependency(self, name: str) -> Dependency | None:
        """Return a dependency by its name, or an earlier one; None where there is none."""
        return self.dependencies.get(name) or self.earlier_names.get(name)

    history_for: timedelta | None = None  # how long histories are kept, from their start; None for ever

    def dependency(self, name: str) -> Dependency:
        """Return a dependency by its name, or an earlier one; UnknownTargetError where there is none."""
        if (dependency := self.find_dependency(name)) is None:
            raise UnknownTargetError([self.missing_dependency(name)])
        return dependency

    def handler(self, name: str) -> HandlerTarget:
        """Return a handler; UnknownTargetError where there is none of this name."""
        if name not in self.handlers:
            raise UnknownTargetError([self.missing_handler(name)])
        return self.handlers[name]

    def missing_dependency(self, name: str) -> Problem:
        guess = did_you_mean(name, list(self.dependencies))
        return Problem("/dependency", f"no dependency has the name {name}{guess}")

    def missing_handler(self, name: str) -> Problem:
        return Problem("/handler", f"no handler has the name {name}{did_you_mean(name, list(self.handlers))}")


type CategoryName = Literal[
    "transient", "throttled", "ambiguous", "malformed", "unauthorized", "not_found", "business_rule"
]

_FAILURE_NAME: Final = re.compile(r"[1-5][0-9]{2}|[A-Za-z_]\w*(\.\w[\w-]*)*", re.ASCII)


_ADDRESS: Final = re.compile(r"(\w+://[\w-]+|[\w-]+[.:][\w-]+)([.:][\w-]+)*(/[\w./-]*)?")
"""What an error message may quote: a host, and not a secret that was written in its place."""


def _base_url_problem(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        usable = parts.hostname and parts.port != 0
    except ValueError:
        return "is not a URL"
    if parts.scheme not in {"http", "https"}:
        shown = f", not {url!r}" if _ADDRESS.fullmatch(url) else ""
        return f"must begin with http:// or https://{shown}"
    if not usable or not url.isprintable() or " " in url:
        return "is not a URL"
    if parts.username is not None or parts.password is not None:
        return "must not hold a user or password: use auth"
    if parts.query or parts.fragment or url.endswith(("?", "#")):
        return "must not hold a query or a fragment"
    return None


def _webhook_secret_problem(text: str) -> str | None:
    try:
        signing_key(Secret(text))
    except WebhookSecretError as error:
        return str(error)
    return None


def _failure_name_problem(name: str) -> str | None:
    return (
        None
        if _FAILURE_NAME.fullmatch(name)
        else "must be a status code (100 to 599), an exception's name or the name of a rule"
    )


type BaseUrl = Annotated[str, checked(_base_url_problem)]

type ConfigHeaderName = Annotated[str, checked(config_header_problem)]

type ConfigHeaderValue = Annotated[str, checked(header_value_problem)]

NAME_OF_DEPENDENCY: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}")
NO_NAME: Final = "a name is letters, digits, _, . and -"

type DependencyName = Annotated[
    str, checked(lambda name: None if NAME_OF_DEPENDENCY.fullmatch(name) else NO_NAME)
]

type FailureName = Annotated[str, checked(_failure_name_problem)]

type WebhookSecret = Annotated[str, checked(_webhook_secret_problem)]


def secret_text(problem_of: Callable[[str], str | None]) -> BeforeValidator:
    """Return what reads a secret; one of no characters is None."""

    def read(value: Any) -> Any:
        if value is None or isinstance(value, Secret):
            return value
        if not isinstance(value, str):
            raise refuse("must be a string")
        if (problem := problem_of(value)) is not None:
            raise refuse(problem)
        return Secret(value) if value else None

    return BeforeValidator(read)


class AuthTable(Strict):
    """`auth`: the header that authenticates the app.

    Attributes:
        header: Its name.
        value: Usually `${NAME}`; never stored, logged or shown.
    """

    header: ConfigHeaderName = "Authorization"
    value: Annotated[SecretText | None, secret_text(header_value_problem)] = None


def _checked_scalar(value: Any) -> Any:
    if not isinstance(value, str | int | float) or value in (inf, -inf) or value != value:  # noqa: PLR0124 - NaN
        raise refuse("must be a string, a finite number, true or false")
    return value


def _checked_place(header: str | None, info: ValidationInfo) -> str | None:
    if header is None and info.data.get("pointer", "") is None:
        raise refuse("is required where the rule has no pointer into the body")
    if header is None:
        return None
    if info.data.get("pointer") is not None:
        raise refuse("cannot stand beside a pointer into the body: a rule looks at one place")
    if not isinstance(info.data.get("equals", ""), str):
        raise refuse("is text: equals must be a string")
    if (problem := answer_header_problem(header)) is not None:
        raise refuse(problem)
    return header


class AnswerRuleTable(Strict):
    """A rule of `classify` on an answer: a header, or a part of its JSON body, has a value.

    Attributes:
        category: What the answer is then.
        equals: The value; that of a header is a text.
        status: Of answers with this status only.
        pointer: JSON pointer of the part of the body.
        header: The header's name.
    """

    category: CategoryName
    equals: Annotated[Any, AfterValidator(_checked_scalar)]
    status: Annotated[int, Field(ge=100, le=599)] | None = None
    pointer: Pointer | None = None
    header: Annotated[str | None, AfterValidator(_checked_place), Field(validate_default=True)] = None


_ClassifyEntry = Annotated[
    Annotated[CategoryName, Tag(TAGS[0])] | Annotated[AnswerRuleTable, Tag(TAGS[1])],
    Discriminator(lambda entry: TAGS[isinstance(entry, dict | Strict)]),
]


class WebhookTable(Strict):
    """`webhook`: how events that go there as webhooks are signed.

    Attributes:
        secrets: Base64 of 24 to 64 bytes each, the newest first; every one signs. Empty: not signed.
    """

    secrets: Annotated[list[WebhookSecret], Field(max_length=10)] = Field(default_factory=list)


TABLES: Final[Mapping[str, type[Strict]]] = {
    "auth": AuthTable,
    "timeouts": table_of(Timeouts),
    "retry": RetryOverride,
    "circuit": table_of(CircuitSettings),
    "retry_budget": table_of(RetryBudgetSettings),
    "idempotency": table_of(IdempotencySettings),
    "webhook": WebhookTable,
    "masking": table_of(Masking),
}
"""The tables of a dependency; most have the keys, defaults and ranges of what they become."""


@cache
def models_of_features() -> Mapping[str, type[Strict]]:
    """Return the keys that each plugin adds to the tables of a dependency, by its name."""
    return {plugin.name: imported(plugin.dependency) for plugin in plugins() if plugin.dependency}


def _model_of_tables(name: str, **more: Any) -> type[Strict]:
    keys: dict[str, Any] = {table: (model, Field(default_factory=model)) for table, model in TABLES.items()}
    keys["headers"] = (dict[ConfigHeaderName, ConfigHeaderValue], Field(default_factory=dict))
    keys["classify"] = (dict[FailureName, _ClassifyEntry], Field(default_factory=dict))
    for model in models_of_features().values():
        keys |= {key: (info.annotation, info) for key, info in model.model_fields.items()}
    return create_model(name, __base__=Strict, **keys, **more)


@cache
def defaults_table() -> type[Strict]:
    """Return the model of `[defaults]`: the values that every dependency starts from."""
    return _model_of_tables("DefaultsTable")


@cache
def dependency_table() -> type[Strict]:
    """Return the model of `[dependencies.<name>]`."""
    return _model_of_tables(
        "DependencyTable",
        base_url=(BaseUrl, ""),
        priority=(PriorityName, "normal"),
        was=(Annotated[list[DependencyName], Field(max_length=8)], Field(default_factory=list)),
    )
