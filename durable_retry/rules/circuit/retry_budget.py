"""The retry budget: how much a fleet may add to a dependency's load by retrying.

A token bucket whose level may go below zero. Each first attempt adds `ratio` tokens, each second adds
`minimum_per_second`, and each retry takes one. A retry that finds no token takes one all the same, which
leaves the bucket in debt, and waits until the debt before it is paid. It then starts without asking again. So
a postponed retry costs one timer, however many wait, and in the long run the rate of retries is what the
settings allow.

The level is part of the circuit's shared state. Workers spend from a copy that is at most a second old. Each
may take an even share of the copy's tokens, and what its own first attempts earned since. So the workers
together overdraw by less than one token each per copy, and later retries wait for that debt. Where a share is
used up and tokens are left, a retry asks again: the next copy shows what the others took. It gets its turn at
once where the tokens left and the minimum rate pay for it before the next copy, even if every worker takes as
many. Where the turn could move by more than `SURE_SECONDS` with what the others take, it asks again at the
earliest possible turn: otherwise, if one worker has all retries, each would wait for as many turns as there
are workers.

A worker that spends is heard within a second, so one that was not heard for `HEARD_SECONDS` has no share: it
may be dead, and its share would be lost. The shares of others do not shrink until they read of a worker, so
one that is new, or was silent, takes a single token, and what its own first attempts earn, until it has been
counted for a second.

A promise assumes that first attempts go on for ten seconds as in the last ten: after a burst this overdraws
by what the burst has earned. It is for an instant, and void two seconds later: after a restart or a break
every retry with a promise asks again. By then its token is paid for, and part of the level. The token of a
retry that will never be made comes back. Nothing is promised for later than `PROMISED_SECONDS`, so the token
that is lost with a terminated operation is soon paid for.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import inf
from typing import Annotated, Final, Literal

from pydantic import Field

from durable_retry.base.json_forms import JsonShape, MsInstant
from durable_retry.base.text import deterministic_fraction
from durable_retry.rules.circuit.calls import Counts, SlidingWindow

CREDIT_SECONDS = 10.0
"""The bucket holds this many seconds of supply at most, so that a quiet hour allows no burst."""

PROMISED_SECONDS = 30.0
"""Nothing is promised for later than this; a retry that would wait longer asks again by then."""
PROMISE_LASTS: Final = timedelta(seconds=2)
"""A promise that is over for longer is void."""
HEARD_SECONDS = 5.0
"""A worker that reported nothing for so long has no share of the level."""
ASK_AGAIN_SECONDS: Final = 1.0
ASK_AGAIN_SPREAD_SECONDS: Final = 0.5
"""A retry that cannot be promised a time yet asks again after the first, plus up to the second."""
SURE_SECONDS: Final = 1.0
"""A promise may be later by this than needed, in case that the other workers take nothing."""

_NO_FIRSTS = SlidingWindow.over(CREDIT_SECONDS)
_NO_SUPPLY_SECONDS = 60.0  # the wait when no supply would ever pay the debt


@dataclass(frozen=True, slots=True)
class RetryBudgetSettings(JsonShape):
    """`[dependencies.<name>.retry_budget]`.

    Attributes:
        ratio: Retries per first attempt, fleet-wide, at least 0; 0 means no budget.
        minimum_per_second: Retries per second beyond that, at least 0.
    """

    ratio: Annotated[float, Field(ge=0, le=1_000)] = 0.2
    minimum_per_second: Annotated[float, Field(ge=0, le=1_000_000)] = 1.0


@dataclass(frozen=True, slots=True)
class Budget(JsonShape):
    """The shared level."""

    # Retries that may go now; below zero, retries that were promised and are not paid for yet.
    tokens: float = 0.0
    at: MsInstant | None = None  # instant of that level; None before the first report
    firsts: SlidingWindow = _NO_FIRSTS  # first attempts of the last ten seconds, counted as calls


@dataclass(frozen=True, slots=True)
class BudgetSnapshot:
    """A worker's copy of the level."""

    tokens: float  # the level when the copy was taken
    per_second: float  # tokens that arrive each second at the present rate of first attempts
    reporters: int  # workers that share the level: heard in `HEARD_SECONDS`, and the reader; at least 1
    taken_at: datetime  # when the copy was taken
    # When the reader itself was heard last, so that the others can know of it; None when it was not.
    heard_at: datetime | None = None
    workers: int = 1  # reported within the circuit's window, and the reader; those that are dead among them
    is_known: bool = True  # whether the reader itself did
    rank: int = 0  # of the reader among them, from 0


@dataclass(frozen=True, slots=True)
class BudgetAllowed:
    """The retry may go now; the worker counts its token as taken."""


@dataclass(frozen=True, slots=True)
class BudgetPostponed(JsonShape):
    until: MsInstant  # when it may go
    # True: its token is taken now, and it goes at `until` without asking again. False: nothing is taken, and
    # it asks again.
    reserved: bool
    limit_key: str | None = None  # whose budget it is; None for that of the dependency
    is_left: bool | None = None  # whether there are tokens, which other workers may take; None for not
    kind: Literal["postponed"] = "postponed"


def account(
    budget: Budget, *, at: datetime, first_attempts: int, retries: int, settings: RetryBudgetSettings
) -> Budget:
    """Add a report to the level. Time does not run backwards: an earlier instant counts as the last one.

    The counts are those since the reporter's last report.
    """
    now = at if budget.at is None else max(at, budget.at)
    firsts = budget.firsts.add(now, Counts(calls=first_attempts)).trimmed(now)
    level = _accrued_tokens(budget, now, settings) + settings.ratio * first_attempts
    # The cap applies before the retries are taken, which may leave the level in debt.
    level = min(level, _token_capacity(firsts, now, settings)) - retries
    # Rounded so that it is the same after a trip through storage.
    return Budget(tokens=round(level, 6), at=now, firsts=firsts)


def supply_per_second(budget: Budget, now: datetime, settings: RetryBudgetSettings) -> float:
    """Return the tokens per second at the rate of first attempts in the last nine to ten seconds.

    It divides by ten, the larger number: promised turns must not cost more than first attempts have earned.
    """
    first_attempts = budget.firsts.totals(now).calls
    return settings.minimum_per_second + settings.ratio * first_attempts / CREDIT_SECONDS


def budget_snapshot(
    budget: Budget,
    *,
    now: datetime,
    settings: RetryBudgetSettings,
    reporters: int,
    heard_at: datetime | None = None,
    workers: int = 1,
    is_known: bool = True,
    rank: int = 0,
) -> BudgetSnapshot:
    """Return a worker's copy of the level, with what was added since the last report.

    See `BudgetSnapshot` for the numbers of workers: at least 1 is used, and `reporters` of `workers`.
    """
    per_second = supply_per_second(budget, now, settings)
    tokens = min(_accrued_tokens(budget, now, settings), _token_capacity(budget.firsts, now, settings))
    reporters = max(1, reporters)
    return BudgetSnapshot(
        tokens,
        per_second,
        reporters,
        taken_at=now,
        heard_at=heard_at,
        workers=max(workers, reporters),
        is_known=is_known,
        rank=rank,
    )


def budget_allows(
    snapshot: BudgetSnapshot,
    now: datetime,
    *,
    settings: RetryBudgetSettings,
    taken_here: int,
    operation_id: str,
    taken_as_newcomer: int | None = None,
    first_attempts_here: int = 0,
    asking_again_here: int = 0,
) -> BudgetAllowed | BudgetPostponed:
    """Return whether a retry may go now.

    A postponed retry waits for the debt of the copy, then for what this worker has taken times the number of
    workers (all take alike), then for a fraction by the operation's name, so that workers do not choose the
    same instants. Where the others may as well have taken much less it asks again.

    Args:
        snapshot: The copy.
        now: The present, aware UTC.
        settings: Those of the dependency.
        taken_here: Tokens that this worker took since the copy.
        operation_id: The operation's id.
        taken_as_newcomer: Tokens that it took before it was counted for a second; None when it was.
        first_attempts_here: First attempts that it made since the copy.
        asking_again_here: Retries of this worker that must ask again, since the copy.
    """
    if settings.ratio <= 0:
        return BudgetAllowed()
    share = _share_of_tokens(snapshot.tokens, snapshot.reporters)
    if taken_as_newcomer is not None:
        # Until the others read of this worker, they share out all tokens among themselves. It may be that all
        # of them are new, and that each believes to be alone.
        share = min(share, 0.0 if taken_as_newcomer else 1.0)
    spent_here = taken_here - settings.ratio * first_attempts_here
    if spent_here + 1.0 <= share:
        return BudgetAllowed()
    is_left = snapshot.tokens - spent_here >= 1.0 or None
    if taken_as_newcomer is not None:
        # Once this worker has been counted for a second, a copy shows the tokens that the others leave.
        again_at = max(now, _next_copy_at(now, operation_id))
        return BudgetPostponed(again_at, reserved=False, is_left=is_left)
    turn = _turn_after_debt(snapshot, now, spent_here + asking_again_here, settings, operation_id)
    return turn if turn.reserved else replace(turn, is_left=is_left)


def _turn_after_debt(
    snapshot: BudgetSnapshot,
    now: datetime,
    before_here: float,
    settings: RetryBudgetSettings,
    operation_id: str,
) -> BudgetPostponed:
    per_second = snapshot.per_second
    if per_second <= 0:
        return _ask_again(now, _NO_SUPPLY_SECONDS, operation_id)
    before_elsewhere = before_here * (snapshot.reporters - 1)
    among = min(snapshot.reporters, 1.0 + SURE_SECONDS * per_second)
    own = before_elsewhere + deterministic_fraction("budget", operation_id) * among
    missing = 1.0 - snapshot.tokens + before_here
    seconds = _seconds_to_earn(missing + own, snapshot, settings)
    next_copy_at = max(now, _next_copy_at(snapshot.taken_at, operation_id))
    until_next_copy = (next_copy_at - snapshot.taken_at).total_seconds()
    # By the next copy the minimum rate alone has paid for it, whatever that copy shows.
    is_paid = missing + own <= until_next_copy * settings.minimum_per_second
    is_sure = is_paid or before_elsewhere <= SURE_SECONDS * per_second
    if is_sure and seconds <= PROMISED_SECONDS:
        return BudgetPostponed(max(now, snapshot.taken_at + timedelta(seconds=seconds)), reserved=True)
    earliest_seconds = _seconds_to_earn(missing, snapshot, settings)
    if earliest_seconds > PROMISED_SECONDS:
        return _ask_again(now, PROMISED_SECONDS / 2, operation_id)
    earliest_at = snapshot.taken_at + timedelta(seconds=earliest_seconds)
    return BudgetPostponed(until=max(earliest_at, next_copy_at), reserved=False)


def _seconds_to_earn(tokens: float, snapshot: BudgetSnapshot, settings: RetryBudgetSettings) -> float:
    seconds, least = max(0.0, tokens) / snapshot.per_second, settings.minimum_per_second
    if seconds <= CREDIT_SECONDS:
        return seconds
    unexpected = tokens - CREDIT_SECONDS * snapshot.per_second
    return CREDIT_SECONDS + unexpected / least if least > 0 else inf


def is_kept(promised_at: datetime | None, now: datetime) -> bool:
    """Whether a promise still holds; None is no promise."""
    return promised_at is not None and now <= promised_at + PROMISE_LASTS


def _next_copy_at(latest_at: datetime, operation_id: str) -> datetime:
    spread_seconds = ASK_AGAIN_SPREAD_SECONDS * deterministic_fraction("budget", operation_id)
    return latest_at + timedelta(seconds=ASK_AGAIN_SECONDS + spread_seconds)


def _ask_again(now: datetime, seconds: float, operation_id: str) -> BudgetPostponed:
    wait_seconds = seconds * (1.0 + deterministic_fraction("budget", operation_id))
    return BudgetPostponed(until=now + timedelta(seconds=wait_seconds), reserved=False)


def _share_of_tokens(tokens: float, reporters: int) -> float:
    """Return a worker's even share of the tokens, or of the debt."""
    if tokens < 1.0:
        return min(0.0, tokens / reporters)
    # Each of many workers may take one of a few tokens: the overdraft is a debt that later retries wait for.
    return max(1, int(tokens / reporters))


def _token_capacity(firsts: SlidingWindow, now: datetime, settings: RetryBudgetSettings) -> float:
    earned = CREDIT_SECONDS * settings.minimum_per_second + settings.ratio * firsts.totals(now).calls
    return max(1.0, earned)


def _accrued_tokens(budget: Budget, now: datetime, settings: RetryBudgetSettings) -> float:
    elapsed_seconds = CREDIT_SECONDS if budget.at is None else (now - budget.at).total_seconds()
    return budget.tokens + max(0.0, elapsed_seconds) * settings.minimum_per_second
