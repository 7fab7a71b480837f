"""The tables of `dependencies.toml` as written: the type and range of each key."""

import re
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field

from durable_retry.engine.base.json_pointer import pointer_problem
from durable_retry.engine.base.request_fields import (
    MAX_SECONDS,
    Seconds,
    config_header_problem,
    header_value_problem,
)
from durable_retry.engine.base.secret import Secret
from durable_retry.engine.base.validation import Strict, checked
from durable_retry.engine.config.webhook_secret import WebhookSecretError, signing_key
from durable_retry.engine.retry.override import RetryOverride

type PositiveSeconds = Annotated[float, Field(gt=0, le=MAX_SECONDS)]
type Ratio = Annotated[float, Field(gt=0, le=1)]
type CategoryName = Literal[
    "transient", "throttled", "ambiguous", "malformed", "unauthorized", "not_found", "business_rule"
]

_FAILURE_NAME: Final = re.compile(r"[1-5][0-9]{2}|[A-Za-z_][A-Za-z0-9_]*")


def _base_url_problem(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        usable = parts.hostname and parts.port != 0
    except ValueError:
        return "is not a URL"
    if parts.scheme not in {"http", "https"}:
        return "must begin with http:// or https://"
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
        None if _FAILURE_NAME.fullmatch(name) else "must be a status code (100 to 599) or an exception's name"
    )


type BaseUrl = Annotated[str, checked(_base_url_problem)]
type ConfigHeaderName = Annotated[str, checked(config_header_problem)]
type ConfigHeaderValue = Annotated[str, checked(header_value_problem)]
type FailureName = Annotated[str, checked(_failure_name_problem)]
type WebhookSecret = Annotated[str, checked(_webhook_secret_problem)]
type Pointer = Annotated[str, checked(pointer_problem)]


def _idempotency_header_problem(name: str) -> str | None:
    return None if name == "" else config_header_problem(name)


class AuthTable(Strict):
    """`auth`: the header that authenticates the app.

    Attributes:
        header: Its name.
        value: Usually `${NAME}`; never stored, logged or shown.
    """

    header: ConfigHeaderName = "Authorization"
    value: ConfigHeaderValue = ""


class TimeoutsTable(Strict):
    """`timeouts`, in seconds."""

    connect_seconds: PositiveSeconds = 2.0
    attempt_seconds: PositiveSeconds = 10.0
    deadline_seconds: Seconds = 3600.0


class CircuitTable(Strict):
    """`circuit`; see `engine.circuit.settings.CircuitSettings`."""

    enabled: bool = True
    failure_ratio: Ratio = 0.5
    minimum_calls: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    window_seconds: PositiveSeconds = 30.0
    consecutive_failures: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    slow_call_seconds: Seconds = 0.0
    slow_call_ratio: Ratio = 1.0
    break_seconds: PositiveSeconds = 30.0
    max_break_seconds: PositiveSeconds = 600.0
    half_open_calls: Annotated[int, Field(ge=1, le=20)] = 1


class RetryBudgetTable(Strict):
    """`retry_budget`; see `engine.circuit.retry_budget.RetryBudgetSettings`."""

    ratio: Annotated[float, Field(ge=0, le=1_000)] = 0.2
    minimum_per_second: Annotated[float, Field(ge=0, le=1_000_000)] = 1.0


class IdempotencyTable(Strict):
    """`idempotency`; see `engine.config.dependency.IdempotencySettings`."""

    header: Annotated[str, checked(_idempotency_header_problem)] = "Idempotency-Key"
    ttl_seconds: PositiveSeconds = 86_400.0
    fingerprint: list[Pointer] = Field(default_factory=list)


class WebhookTable(Strict):
    """`webhook`: how events that go there as webhooks are signed.

    Attributes:
        secrets: Base64 of 24 to 64 bytes each, the newest first; every one signs. Empty: not signed.
    """

    secrets: Annotated[list[WebhookSecret], Field(max_length=10)] = Field(default_factory=list)


class DefaultsTable(Strict):
    """`[defaults]`: the values that every dependency starts from."""

    headers: dict[ConfigHeaderName, ConfigHeaderValue] = Field(default_factory=dict)
    auth: AuthTable = Field(default_factory=AuthTable)
    timeouts: TimeoutsTable = Field(default_factory=TimeoutsTable)
    retry: RetryOverride = Field(default_factory=RetryOverride)
    circuit: CircuitTable = Field(default_factory=CircuitTable)
    retry_budget: RetryBudgetTable = Field(default_factory=RetryBudgetTable)
    idempotency: IdempotencyTable = Field(default_factory=IdempotencyTable)
    classify: dict[FailureName, CategoryName] = Field(default_factory=dict)
    webhook: WebhookTable = Field(default_factory=WebhookTable)


class DependencyTable(DefaultsTable):
    """`[dependencies.<name>]`."""

    base_url: BaseUrl
