"""What `make crash` holds operations to, whatever was killed under them.

lost        an accepted operation does not end, or ends otherwise than it should
early       an attempt reaches the target before the wait after the one before it is over
miscounted  the attempts at the target are not 1, 2, ... to the number that the operation takes, or its
            document has another number. An attempt may be made again under its number if a part was killed,
            or did not serve again yet, between its two calls: a call is made at least once
unexplained an attempt began over two seconds after it was due, and no reason says why
"""

from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby, pairwise
from typing import Any

from bench.peers.target import Call
from durable_retry.rules.retry.loop import SHOWN_LATE_AFTER

WAIT_SECONDS = 1.0
LEAST_WAIT_SECONDS = WAIT_SECONDS - 0.005
"""The app waits by the wall clock, the target reads the monotonic one."""
MOST_ATTEMPTS = 4
UNEXPLAINED_SECONDS = SHOWN_LATE_AFTER.total_seconds() + 0.01
"""What is later has a reason; figures of a document are rounded."""
PROMISES = ("lost", "early", "miscounted", "unexplained")


@dataclass(frozen=True, slots=True)
class Expected:
    """How an operation ends: the path that it calls, its status, and how many attempts it takes."""

    path: str
    status: str
    attempts: int


def expected(number: int) -> Expected:
    """Half succeed at once, a third after a failure, a sixth after two; of 50 one is refused, one fails."""
    match number % 50:
        case 7:
            return Expected("/refuses/422", "dead_lettered", 1)
        case 31:
            return Expected("/attempts/99", "dead_lettered", MOST_ATTEMPTS)
        case _:
            failures = (0, 0, 0, 1, 1, 2)[number % 6]
            return Expected(f"/attempts/{failures}", "succeeded", failures + 1)


@dataclass(frozen=True, slots=True)
class Kill:
    """A part that was killed, and when it served again; seconds of the monotonic clock."""

    part: str
    began: float
    over: float


@dataclass(slots=True)
class Findings:
    """What was seen of the operations.

    Attributes:
        broken: Per promise (see above) what broke it, with the operation's id.
        repeated: Attempts that a kill cut off and that were made again, as promised.
    """

    broken: dict[str, list[str]] = field(default_factory=lambda: {promise: [] for promise in PROMISES})
    repeated: int = 0

    def judge(
        self, name: str, want: Expected, document: dict[str, Any], calls: list[Call], kills: list[Kill]
    ) -> None:
        """Compares one operation with what was promised.

        Args:
            name: What the findings call it.
            want: How it must end.
            document: Its status document; {} when there is none.
            calls: Of it at the target, in the order of arrival.
            kills: All kills.
        """

        def broke(promise: str, how: str) -> None:
            self.broken[promise].append(f"{name}: {how}")

        ended = document.get("status", "unknown")
        if ended != want.status:
            broke("lost", f"{ended}, not {want.status}")
        for before, after in pairwise(calls):
            waited = after.arrival - before.answer
            if after.attempt != before.attempt:
                if not before.answer or waited < LEAST_WAIT_SECONDS:
                    broke("early", f"attempt {after.attempt} after {waited:.3f} s")
            elif any(before.arrival <= kill.over and kill.began <= after.arrival for kill in kills):
                self.repeated += 1
            else:
                broke("miscounted", f"attempt {after.attempt} made again without a kill")
        # Distinct numbers in the order of their calls: one that is made out of turn shows as well.
        numbers = [attempt for attempt, _ in groupby(call.attempt for call in calls)]
        counted = document.get("attempt_count")
        if numbers != list(range(1, want.attempts + 1)) or counted != want.attempts:
            broke("miscounted", f"attempts {numbers}, counted {counted}, not {want.attempts}")
        for attempt in unexplained(document):
            broke("unexplained", f"attempt {attempt['number']} at {attempt['started_at']}")


def unexplained(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the attempts of a status document that began late without a reason that says why."""
    held_up = {wait["before_attempt"] for wait in document.get("waits", ()) if wait["delay_reasons"]}
    return [
        after
        for before, after in pairwise(document.get("attempts", ()))
        if _late_seconds(before, after) > UNEXPLAINED_SECONDS
        and after["number"] not in held_up
        and not any("nothing here worked" in reason for reason in before["delay_reasons"])
    ]


def _late_seconds(before: dict[str, Any], after: dict[str, Any]) -> float:
    began, again = (datetime.fromisoformat(attempt["started_at"]) for attempt in (before, after))
    waited: float = before["duration_ms"] / 1_000 + before["next_delay_seconds"]
    return (again - began).total_seconds() - waited
