"""The outages of a dependency, or of one of its limit keys, by its circuit, and the bulk action after one."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

from durable_retry.base.json_forms import JsonShape, to_rfc3339
from durable_retry.rules.circuit.breaker import FREE, Breaker
from durable_retry.rules.circuit.states import CircuitState
from durable_retry_console.keys import Recovery

_LOOKS_APART: Final = timedelta(minutes=1)
"""An outage that no look saw began no earlier before its end; its breaks were shorter."""

_LONG_AGO: Final = timedelta(minutes=10)
"""What ended earlier is no concern of a recovery that was set since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A time in which the circuit let no calls through but probes."""

    began_at: datetime
    ended_at: datetime

    def action_id(self, dependency: str, limit_key: str) -> str:
        """Return the id of the bulk action that follows it; "" where it was that of the whole dependency."""
        name = f"recovery\x00{dependency}\x00{to_rfc3339(self.ended_at)}\x00{limit_key}"
        return f"bulk-{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outages(JsonShape):
    """What is known of outages between two looks at a circuit."""

    # When the one began that nothing has followed yet; None where no look saw it.
    began_at: datetime | None = None
    # When the last one ended that was followed, or was over long before; None for none.
    ended_at: datetime | None = None


def seen_outage(
    known: Outages | None, breaker: Breaker, window_seconds: float, recovery: Recovery, now: datetime
) -> tuple[Outages, Outage | None]:
    """Return what is known after a look at the circuit, and the outage that a bulk action is to follow now.

    One in which the circuit closed for a shorter time goes on: it is followed once.

    Args:
        window_seconds: So much earlier the failures began that opened the circuit.
    """
    closed_at = breaker.draining_since
    if known is None:
        is_old = closed_at is not None and closed_at < now - _LONG_AGO
        known = Outages(ended_at=closed_at if is_old else None)
    if breaker.state not in FREE:
        since = breaker.closed_to_calls_since or now
        return replace(known, began_at=min(known.began_at or since, since)), None
    if closed_at is None or closed_at == known.ended_at or breaker.state is not CircuitState.CLOSED:
        return known, None
    if now - closed_at < timedelta(seconds=recovery.after_closed_seconds):
        return known, None
    began_at = (known.began_at or closed_at - _LOOKS_APART) - timedelta(seconds=window_seconds)
    return Outages(ended_at=closed_at), Outage(began_at=began_at, ended_at=closed_at)
