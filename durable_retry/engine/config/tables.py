"""The tables of dependencies.toml, as models that refuse what is wrong."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, create_model

from durable_retry.engine.base.masking import Masking
from durable_retry.engine.base.names import OrderOnFailureName, PriorityName
from durable_retry.engine.base.text import Secret
from durable_retry.engine.base.validation import (
    Strict,
    checked,
    config_header_problem,
    header_value_problem,
    table_of,
)
from durable_retry.engine.circuit.retry_budget import RetryBudgetSettings
from durable_retry.engine.circuit.states import CircuitSettings
from durable_retry.engine.config.dependency import (
    AlertThresholds,
    IdempotencySettings,
    WebhookSecretError,
    signing_key,
)
from durable_retry.engine.limits.settings import LimitSettings
from durable_retry.engine.retry.policy import RetryOverride, Timeouts

type CategoryName = Literal[
    "transient", "throttled", "ambiguous", "malformed", "unauthorized", "not_found", "business_rule"
]

_FAILURE_NAME: Final = re.compile(r"[1-5][0-9]{2}|[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


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


class AuthTable(Strict):
    """`auth`: the header that authenticates the app.

    Attributes:
        header: Its name.
        value: Usually `${NAME}`; never stored, logged or shown.
    """

    header: ConfigHeaderName = "Authorization"
    value: ConfigHeaderValue = ""


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
    "limits": table_of(LimitSettings),
    "idempotency": table_of(IdempotencySettings),
    "webhook": WebhookTable,
    "masking": table_of(Masking),
    "alerts": table_of(AlertThresholds),
}
"""The tables of a dependency; most have the keys, defaults and ranges of what they become."""


def _model_of_tables(name: str, **more: Any) -> type[Strict]:
    keys: dict[str, Any] = {table: (model, Field(default_factory=model)) for table, model in TABLES.items()}
    keys["headers"] = (dict[ConfigHeaderName, ConfigHeaderValue], Field(default_factory=dict))
    keys["classify"] = (dict[FailureName, CategoryName], Field(default_factory=dict))
    return create_model(name, __base__=Strict, **keys, **more)


DefaultsTable: Final = _model_of_tables("DefaultsTable")
"""`[defaults]`: the values that every dependency starts from."""

DependencyTable: Final = _model_of_tables(
    "DependencyTable",
    base_url=(BaseUrl, ""),
    priority=(PriorityName, "normal"),
    order_on_failure=(OrderOnFailureName, "block"),
)
"""`[dependencies.<name>]`."""
