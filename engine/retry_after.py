"""How long a dependency asks to be left alone, out of its response headers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class RetryHint:
    """A dependency's wish for a wait.

    Attributes:
        delay_seconds: Counted from the answer; 0 or more.
        source: Where it was read, e.g. `Retry-After`.
        notes: What was clamped or ignored on the way, for a person.
    """

    delay_seconds: float
    source: str = "Retry-After"
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Give the JSON form."""
        return {"delay_seconds": self.delay_seconds, "source": self.source, "notes": list(self.notes)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        return cls(data["delay_seconds"], data["source"], tuple(data["notes"]))
