"""The retry budget: how much a fleet may add to a dependency's load by trying again.

A token bucket whose level may go below zero. Each first attempt adds `ratio` tokens, each second adds
`minimum_per_second`; each retry takes one. A retry that finds no token is not refused and asked to come back
to be refused again: it takes its token at once, which leaves the bucket in debt, and is told when the debt
that stands before it will be paid. It then goes without asking. So a postponed retry costs one timer, however
many are waiting, and the rate of retries in the long run is exactly what the settings allow.

The level is shared: it lives in the circuit's state and workers spend from a copy that is at most a second
old. A worker may take its even share of what the copy shows, so `reporters` workers together overdraw by less
than one token each per copy, and what they overdraw is a debt that later retries wait for.
"""

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from engine.sliding_window import Counts, SlidingWindow, optional_from_ms, optional_to_ms
from engine.spread import fraction_of

CREDIT_SECONDS = 10.0
"""Unspent tokens are worth this many seconds of supply at most, so that a quiet hour buys no burst."""

_NO_FIRSTS = SlidingWindow.over(CREDIT_SECONDS)
_NO_SUPPLY_SECONDS = 60.0  # asked again after this when nothing would ever pay the debt


@dataclass(frozen=True, slots=True)
class RetryBudgetSettings:
    """`[dependencies.<name>.retry_budget]`.

    Attributes:
        ratio: retries allowed per first attempt, fleet-wide, at least 0; 0 = no budget at all.
        minimum_per_second: retries per second allowed besides, at least 0.
    """

    ratio: float = 0.2
    minimum_per_second: float = 1.0

    def to_json(self) -> dict[str, Any]:
        """As the keys of the settings file."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "RetryBudgetSettings":
        """Read `to_json`.

        Raises:
            TypeError: for a key that is no setting.
        """
        return cls(**document)


@dataclass(frozen=True, slots=True)
class Budget:
    """The shared level.

    Attributes:
        tokens: retries that may go now; below zero, retries that are promised and not yet paid for.
        at: instant of that level; None before the first report.
        firsts: first attempts of the last ten seconds, counted as calls.
    """

    tokens: float = 0.0
    at: datetime | None = None
    firsts: SlidingWindow = _NO_FIRSTS

    def to_json(self) -> dict[str, Any]:
        """For the entity's state; instants in milliseconds since 1970."""
        return {
            "tokens": self.tokens,
            "at": optional_to_ms(self.at),
            "firsts": self.firsts.to_json(),
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Budget":
        """Read `to_json`."""
        return cls(
            tokens=document["tokens"],
            at=optional_from_ms(document["at"]),
            firsts=SlidingWindow.from_json(document["firsts"]),
        )


@dataclass(frozen=True, slots=True)
class BudgetSnapshot:
    """What a worker spends from.

    Attributes:
        tokens: the level when the copy was taken.
        per_second: tokens that come in each second at the present rate of first attempts.
        reporters: workers that share the level, at least 1.
        taken_at: instant of the copy.
    """

    tokens: float
    per_second: float
    reporters: int
    taken_at: datetime


@dataclass(frozen=True, slots=True)
class BudgetAllowed:
    """The retry may go now; the worker counts it as taken."""


@dataclass(frozen=True, slots=True)
class BudgetPostponed:
    """The retry waits.

    Attributes:
        until: when it may go.
        reserved: True: its token is taken now (count it as taken) and it goes at `until` without asking
            again. False: nothing is taken, and it asks again.
    """

    until: datetime
    reserved: bool


def account(
    budget: Budget, *, at: datetime, first_attempts: int, retries: int, settings: RetryBudgetSettings
) -> Budget:
    """Book what a report brings. `at` may not run backwards; an earlier instant counts as the last one.

    Args:
        budget: the level so far.
        at: instant of the report.
        first_attempts: first attempts started since the reporter's last report.
        retries: retries started or promised since then.
        settings: the dependency's budget.
    """
    now = at if budget.at is None else max(at, budget.at)
    firsts = budget.firsts.add(now, Counts(calls=first_attempts)).trimmed(now)
    level = _accrued(budget, now, settings) + settings.ratio * first_attempts
    level = min(level, _capacity(firsts, now, settings)) - retries
    # Rounded so that it is the same after a trip through storage.
    return Budget(tokens=round(level, 6), at=now, firsts=firsts)


def supply_per_second(budget: Budget, now: datetime, settings: RetryBudgetSettings) -> float:
    """Tokens per second at the rate of first attempts in the last nine to ten seconds."""
    first_attempts = budget.firsts.totals(now).calls
    return settings.minimum_per_second + settings.ratio * first_attempts / budget.firsts.covered_seconds(now)


def budget_snapshot(
    budget: Budget, *, now: datetime, settings: RetryBudgetSettings, reporters: int
) -> BudgetSnapshot:
    """Copy the level for a worker, with what came in since the last report.

    Args:
        budget: the shared level.
        now: instant of the copy.
        settings: the dependency's budget.
        reporters: workers that reported lately; the reader counts itself, so at least 1 is used.
    """
    per_second = supply_per_second(budget, now, settings)
    tokens = min(_accrued(budget, now, settings), _capacity(budget.firsts, now, settings))
    return BudgetSnapshot(tokens=tokens, per_second=per_second, reporters=max(1, reporters), taken_at=now)


def budget_allows(
    snapshot: BudgetSnapshot,
    now: datetime,
    *,
    settings: RetryBudgetSettings,
    taken_here: int,
    operation_id: str,
) -> BudgetAllowed | BudgetPostponed:
    """Say whether a retry may go now.

    The place in the queue of a postponed retry: the debt of the copy, then this worker's own takings times
    the number of workers (they all take alike), then a fraction from the operation's name, so that workers
    do not name the same instants.

    Args:
        snapshot: copy of the shared level.
        now: present instant.
        settings: the dependency's budget; a ratio of 0 allows everything.
        taken_here: tokens this worker took since the copy.
        operation_id: names the operation, for an even spread.
    """
    if settings.ratio <= 0:
        return BudgetAllowed()
    if taken_here < _share(snapshot):
        return BudgetAllowed()
    if snapshot.per_second <= 0:
        wait_seconds = _NO_SUPPLY_SECONDS * (1.0 + fraction_of("budget", operation_id))
        return BudgetPostponed(until=now + timedelta(seconds=wait_seconds), reserved=False)
    place = taken_here + fraction_of("budget", operation_id)
    debt = max(0.0, 1.0 - snapshot.tokens) + place * snapshot.reporters
    until = snapshot.taken_at + timedelta(seconds=debt / snapshot.per_second)
    return BudgetPostponed(until=max(now, until), reserved=True)


def _share(snapshot: BudgetSnapshot) -> int:
    if snapshot.tokens < 1.0:
        return 0
    return max(1, int(snapshot.tokens / snapshot.reporters))


def _capacity(firsts: SlidingWindow, now: datetime, settings: RetryBudgetSettings) -> float:
    earned = CREDIT_SECONDS * settings.minimum_per_second + settings.ratio * firsts.totals(now).calls
    return max(1.0, earned)


def _accrued(budget: Budget, now: datetime, settings: RetryBudgetSettings) -> float:
    elapsed_seconds = CREDIT_SECONDS if budget.at is None else (now - budget.at).total_seconds()
    return budget.tokens + max(0.0, elapsed_seconds) * settings.minimum_per_second
