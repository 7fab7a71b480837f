"""Waits that are no attempt's: an operation held up by the circuit or by the retry budget."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Self

from engine.instants import from_rfc3339, to_rfc3339

KEPT_WAITS: Final = 5
"""How many of the latest waits travel with an operation."""


class WaitKind(StrEnum):
    """What held an operation up."""

    CIRCUIT = "circuit"
    RETRY_BUDGET = "retry_budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitRecord:
    """One item of a status document's `waits`: all the waits of one kind in a row before one attempt.

    Attributes:
        before_attempt: Which attempt had to wait, from 1.
        kind: What held it up.
        began_at: When the first of them began.
        until: When the last of them was to end.
        times: How many there were, at least 1.
        delay_reasons: Why the last of them was that long, each a few words.
    """

    before_attempt: int
    kind: WaitKind
    began_at: datetime
    until: datetime
    delay_reasons: tuple[str, ...] = ()
    times: int = 1

    def to_json(self) -> dict[str, Any]:
        """Give the form of an item of `waits`."""
        return {
            "before_attempt": self.before_attempt,
            "kind": self.kind.value,
            "began_at": to_rfc3339(self.began_at),
            "until": to_rfc3339(self.until),
            "times": self.times,
            "delay_reasons": list(self.delay_reasons),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        values = dict(data)
        values["kind"] = WaitKind(data["kind"])
        values["began_at"] = from_rfc3339(data["began_at"])
        values["until"] = from_rfc3339(data["until"])
        values["delay_reasons"] = tuple(data["delay_reasons"])
        return cls(**values)


def with_wait(waits: tuple[WaitRecord, ...], wait: WaitRecord) -> tuple[WaitRecord, ...]:
    """Add a wait to those before it; one more of the same is told with the last, the oldest go."""
    last = waits[-1] if waits else None
    if last is None or (last.before_attempt, last.kind) != (wait.before_attempt, wait.kind):
        return (*waits, wait)[-KEPT_WAITS:]
    return (*waits[:-1], replace(wait, began_at=last.began_at, times=last.times + wait.times))
