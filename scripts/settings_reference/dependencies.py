"""Keys of dependencies.toml: ranges from the models that validate, meanings from what they become."""

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel

from durable_retry.engine.circuit.retry_budget import RetryBudgetSettings
from durable_retry.engine.circuit.states import CircuitSettings
from durable_retry.engine.config import (
    AuthTable,
    CircuitTable,
    DependencyTable,
    IdempotencyTable,
    RetryBudgetTable,
    TimeoutsTable,
    WebhookTable,
)
from durable_retry.engine.dependency import Dependency, IdempotencySettings
from durable_retry.engine.retry.policy import PRESETS, RetryOverride, RetryPolicy, Timeouts
from scripts.settings_reference.markdown import shown, span, table, words

HEAD: Final = ("key", "default", "unit", "range", "what it is")

TABLES: Final[Mapping[str, tuple[type[BaseModel], type]]] = {
    "auth": (AuthTable, AuthTable),
    "timeouts": (TimeoutsTable, Timeouts),
    "retry": (RetryOverride, RetryPolicy),
    "circuit": (CircuitTable, CircuitSettings),
    "retry_budget": (RetryBudgetTable, RetryBudgetSettings),
    "idempotency": (IdempotencyTable, IdempotencySettings),
    "webhook": (WebhookTable, WebhookTable),
}
"""Table -> the model that validates it, and the class that says what its keys mean."""

_ENTRY: Final = re.compile(r"^    (\w+): ", re.MULTILINE)
_UNITS: Final = {"_seconds": "s", "_per_second": "1/s", "ratio": "share"}


def dependency_keys() -> Iterator[str]:
    """Give a section for the keys of a dependency, and one for each of its tables."""
    schema = DependencyTable.model_json_schema()
    own = sorted(key for key in schema["properties"] if key not in TABLES)
    meanings = meanings_in(Dependency)
    yield "### `[dependencies.<name>]`"
    yield table(HEAD, (_row(key, schema["properties"][key], {}, meanings) for key in own))
    for name, (model, documented) in TABLES.items():
        yield f"### `[dependencies.<name>.{name}]`"
        yield table(HEAD, _rows(model, meanings_in(model) | meanings_in(documented)))


def presets() -> str:
    """Give the table of presets."""
    head = ("preset", "strategy", "attempts", "waits", "jitter", "longest `Retry-After`", "take it for")
    return table(
        head,
        (
            (
                f"`{name}`",
                preset.policy.strategy,
                str(preset.policy.max_attempts),
                _waits(preset.policy),
                preset.policy.jitter,
                f"{preset.policy.max_retry_after_seconds:g} s",
                preset.reason,
            )
            for name, preset in PRESETS.items()
        ),
    )


def meanings_in(documented: type) -> dict[str, str]:
    """Read the `Attributes:` of a class's docstring, name by name."""
    _, _, text = (inspect.getdoc(documented) or "").partition("Attributes:\n")
    parts = _ENTRY.split(text)
    return {
        name: _sentence(" ".join(meaning.split()))
        for name, meaning in zip(parts[1::2], parts[2::2], strict=True)
    }


def _sentence(text: str) -> str:
    return text if text.startswith("http") else text[:1].upper() + text[1:]


def _rows(model: type[BaseModel], meanings: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    schema = model.model_json_schema()
    for key, rule in schema["properties"].items():
        yield _row(key, rule, schema.get("$defs", {}), meanings)


def _row(
    key: str, rule: Mapping[str, Any], named: Mapping[str, Any], meanings: Mapping[str, str]
) -> tuple[str, ...]:
    full = {**named.get(str(rule.get("$ref", "")).rpartition("/")[2], {}), **rule}
    unit = next((unit for end, unit in _UNITS.items() if key.endswith(end)), "")
    default = "required" if key == "base_url" else shown(full.get("default"))
    return f"`{key}`", default, unit, _range(full), meanings[key]


def _range(rule: Mapping[str, Any]) -> str:
    match rule.get("type"):
        case "boolean":
            return "`true`, `false`"
        case "integer" | "number":
            return span(rule.get("minimum"), rule.get("maximum"), above=rule.get("exclusiveMinimum"))
        case "array":
            return f"list, {span(None, rule['maxItems'])} entries" if "maxItems" in rule else "list"
        case "object":
            return "table"
        case _:
            return words(rule.get("enum", ()))


def _waits(policy: RetryPolicy) -> str:
    match policy.strategy:
        case "schedule":
            return ", ".join(f"{wait:g}" for wait in policy.schedule_seconds) + " s"
        case "fixed":
            return f"{policy.initial_seconds:g} s"
        case _ if policy.max_attempts == 1:
            return "-"
        case _:
            return f"{policy.initial_seconds:g} s, times {policy.factor:g}, up to {policy.max_seconds:g} s"
