"""A replay proves itself: it sends 1, then 5, then the rest, and stops where what it sends fails again.

    1 ──ended──> 5 ──ended──> the rest at its rate ─┐
                                 ^                  ├──too many of the last 20 failed again──> stopped
                                 └──────────────────┘
    stopped ──somebody resumes it──> 1 ...

Only ends after the latest resume count: they say how it goes now.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from heapq import nlargest
from operator import attrgetter
from typing import Final, Self

from durable_retry.base.documents import json_object
from durable_retry.base.json_forms import JsonShape
from durable_retry.base.text import cut_text, outcome_text
from durable_retry.rules.dead_letters.record import KeptDeadLetter

_GATES: Final = (1, 6)
"""So many are sent, and have to end, before more are."""

LATEST: Final = 20
"""So many of the last that ended are looked at."""

_WHY_CHARS: Final = 200

_FIRST_LOOK: Final = timedelta(seconds=2)
_LONGEST_BEFORE_GATE: Final = timedelta(minutes=15)
_LONGEST_WHILE_SENDING: Final = timedelta(minutes=1)
# What is sent between two looks is a thirty-second of what was sent, so that a stop comes in time.
_AGE_PER_LOOK: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class End(JsonShape):
    """One that has ended."""

    at: datetime
    failed: bool
    # What it failed with again, such as `still 422 at /amount`; of the newest that did.
    why: str | None = None


def latest_of(ends: Iterable[End]) -> tuple[End, ...]:
    """Return the last that ended, the newest first."""
    return tuple(nlargest(LATEST, ends, key=attrgetter("at")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof(JsonShape):
    """How a replay that proves itself stands."""

    stop_at_failed: float  # the share of the last that ended above which it stops
    since: datetime  # when it began, or was resumed
    resumes: int = 0  # how often it was resumed
    started_before: int = 0  # how many it had started by then
    # How many have ended of those started since, or wait for their turn in a lane, perhaps behind one that is
    # still to be sent.
    ended: int = 0
    looked_at: datetime | None = None  # when ends were last looked at; None before the first time

    def may_start(self, started: int, most: int) -> int:
        """Return how many of `most` may begin; 0 before all have ended that were to prove themselves."""
        sent = started - self.started_before
        if sent in _GATES and self.ended < sent:
            return 0
        following = next((gate for gate in _GATES if gate > sent), None)
        return most if following is None else min(most, following - sent)

    def next_look_at(self, started: int) -> datetime:
        """Return when ends are to be looked at again."""
        is_sending = self.may_start(started, 1) > 0
        longest = _LONGEST_WHILE_SENDING if is_sending else _LONGEST_BEFORE_GATE
        looked_at = max(self.looked_at or self.since, self.since)
        return looked_at + min(max(_FIRST_LOOK, (looked_at - self.since) / _AGE_PER_LOOK), longest)

    def is_failing(self, latest: Sequence[End]) -> bool:
        """Whether too many of the last that ended failed again."""
        return sum(end.failed for end in latest) > self.stop_at_failed * len(latest)

    def resumed(self, started: int, now: datetime) -> Self:
        """Return the proof that begins when it is resumed."""
        return replace(
            self, since=now, resumes=self.resumes + 1, started_before=started, ended=0, looked_at=None
        )


def failure_text(letter: KeptDeadLetter) -> str:
    """Return how it failed, as short as it is said: `422 at /amount`, `503: no upstream`, `ReadTimeout`."""
    last = letter.attempts[-1] if letter.attempts else {}
    status_code = last.get("status_code")
    refusal = json_object((letter.failure and letter.failure.body) or "") or {}
    # RFC 9457 has the place of what is wrong in `errors`.
    errors = refusal.get("errors")
    first = errors[0] if isinstance(errors, list) and errors else None
    pointer = first.get("pointer") if isinstance(first, dict) else None
    if status_code is not None and isinstance(pointer, str) and pointer:
        return cut_text(f"{status_code} at {pointer}", _WHY_CHARS)
    return cut_text(outcome_text(status_code, last.get("error")) or letter.detail, _WHY_CHARS)


def stop_reason(started: int, matched: int, latest: Sequence[End]) -> str:
    """Return why it stops: `1 of 4,000 replayed: still 422 at /amount`."""
    failed = [end for end in latest if end.failed]
    share = f", {len(failed)} of the last {len(latest)} failed again" if len(latest) > 1 else ""
    why = next((end.why for end in failed if end.why), "failed again")
    return f"{started:,} of {matched:,} replayed{share}: {why}"
