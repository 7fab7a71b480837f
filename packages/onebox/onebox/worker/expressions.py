"""Binding expressions: `{name}` in an output binding's path or queue name.

Source: "Azure Functions binding expression patterns", Microsoft Learn.
"""

import json
import re
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

_EXPRESSION = re.compile(r"\{([^{}]+)\}")


class ExpressionError(ValueError):
    """An expression names something that the trigger does not offer."""


def expand(text: str, values: Mapping[str, str], now: datetime) -> str:
    """Replace every `{name}`.

    Args:
        text: As written in a binding, app settings already expanded.
        values: What the trigger offers, by lower-case name.
        now: For `{DateTime}`.

    Raises:
        ExpressionError: A name is not offered.
    """

    def value_of(match: re.Match[str]) -> str:
        name = match[1].strip().lower()
        if name in {"rand-guid", "sys.randguid"}:
            return str(uuid.uuid4())
        if name in {"datetime", "sys.utcnow"}:
            return now.strftime("%Y-%m-%dT%H-%M-%SZ")
        if name not in values:
            raise ExpressionError(f"{text!r}: the trigger offers no {{{match[1]}}}")
        return values[name]

    return _EXPRESSION.sub(value_of, text)


def values_of(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return a trigger's metadata (a Datum per name) as expressions see it."""
    return {name.lower(): _text(datum) for name, datum in metadata.items()}


def _text(datum: Any) -> str:
    if datum.type != "json":
        return str(datum.value)
    value = json.loads(datum.value)
    return value if isinstance(value, str) else datum.value
