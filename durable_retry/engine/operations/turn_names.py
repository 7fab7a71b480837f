"""The names by which many operations are chosen that decide when each has its turn."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from durable_retry.engine.base.names import Priority

TURN_NAMES: Final = ("order_key", "priority", "debounce_key")


def turn_names_of(document: Mapping[str, Any]) -> dict[str, str]:
    """Return what a status document has for each of `TURN_NAMES`, "" for a key that it has not."""
    names = {name: document.get(name) or "" for name in TURN_NAMES}
    return names | {"priority": names["priority"] or Priority.NORMAL.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnNames:
    """Conditions on these names, a part of a filter; None means any."""

    order_key: str | None = None  # the whole order key
    priority: Priority | None = None
    debounce_key: str | None = None  # the whole debounce key

    @property
    def turn_names(self) -> dict[str, str]:
        """The names that are asked for."""
        return {name: value for name in TURN_NAMES if (value := getattr(self, name)) is not None}

    def fits_names(self, names: Mapping[str, str]) -> bool:
        """Return whether what has these names matches."""
        return all(names[name] == value for name, value in self.turn_names.items())
