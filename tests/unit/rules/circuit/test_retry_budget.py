from datetime import datetime, timedelta

import pytest

from durable_retry.rules.circuit.breaker import ManualControl
from durable_retry.rules.circuit.retry_budget import (
    PROMISED_SECONDS,
    Budget,
    BudgetAllowed,
    BudgetPostponed,
    BudgetSnapshot,
    RetryBudgetSettings,
    account,
    budget_allows,
    budget_snapshot,
    is_kept,
)
from tests.support.builders import NOON, after
from tests.support.circuit import BUDGET, Desk
from tests.support.narrowing import of_type


def book(
    budget: Budget, at: float, *, firsts: int = 0, retries: int = 0, settings: RetryBudgetSettings = BUDGET
) -> Budget:
    return account(budget, at=after(at), first_attempts=firsts, retries=retries, settings=settings)


def read(
    budget: Budget, at: float, reporters: int = 1, settings: RetryBudgetSettings = BUDGET
) -> BudgetSnapshot:
    return budget_snapshot(budget, now=after(at), settings=settings, reporters=reporters)


def ask(
    snapshot: BudgetSnapshot,
    taken_here: int = 0,
    settings: RetryBudgetSettings = BUDGET,
    operation_id: str = "op-1",
    now: datetime | None = None,
    *,
    taken_as_newcomer: int | None = None,
    first_attempts_here: int = 0,
    asking_again_here: int = 0,
) -> BudgetAllowed | BudgetPostponed:
    return budget_allows(
        snapshot,
        now or snapshot.taken_at,
        settings=settings,
        taken_here=taken_here,
        operation_id=operation_id,
        taken_as_newcomer=taken_as_newcomer,
        first_attempts_here=first_attempts_here,
        asking_again_here=asking_again_here,
    )


def asks_again(answer: BudgetAllowed | BudgetPostponed) -> bool:
    """Whether it takes no token and asks again after a second to one and a half."""
    if not isinstance(answer, BudgetPostponed) or answer.reserved:
        return False
    return after(1) <= answer.until < after(1.5)


def test_it_begins_with_ten_seconds_of_the_least_rate() -> None:
    assert read(Budget(), 0).tokens == 10


@pytest.mark.parametrize(("firsts", "retries", "tokens"), [(0, 0, 10), (0, 4, 6), (0, 25, -15), (100, 25, 5)])
def test_first_attempts_earn_and_retries_spend(firsts: int, retries: int, tokens: float) -> None:
    # 100 first attempts are worth 20 retries, which fit beside the ten seconds of the least rate.
    assert book(Budget(), 0, firsts=firsts, retries=retries).tokens == pytest.approx(tokens)


def test_each_second_earns_the_least_rate() -> None:
    spent = book(Budget(), 0, retries=20)
    assert read(spent, 5).tokens == -5
    assert book(spent, 5).tokens == -5


def test_unspent_credit_is_worth_ten_seconds_at_most() -> None:
    rich = book(Budget(), 0, firsts=1_000)
    assert rich.tokens == pytest.approx(210)
    assert book(rich, 11).tokens == 10
    assert read(rich, 3_600).tokens == 10


def test_supply_follows_the_first_attempts_of_the_last_ten_seconds() -> None:
    busy = book(Budget(), 0, firsts=100)
    assert read(busy, 0).per_second == pytest.approx(1 + 20 / 10)  # 9 seconds of calls, as if they were of 10
    assert read(busy, 10).per_second == pytest.approx(1)


def test_an_earlier_instant_counts_as_the_last_one() -> None:
    booked = book(book(Budget(), 10, retries=5), 0, retries=1)
    assert (booked.at, booked.tokens) == (after(10), 4)


def test_a_retry_goes_while_there_is_a_token() -> None:
    assert ask(read(Budget(), 0), taken_here=9) == BudgetAllowed()
    assert isinstance(ask(read(Budget(), 0), taken_here=10), BudgetPostponed)


def test_a_ratio_of_zero_is_no_budget() -> None:
    off = RetryBudgetSettings(ratio=0, minimum_per_second=0)
    assert ask(BudgetSnapshot(-99, 0, 1, NOON), settings=off) == BudgetAllowed()


def test_workers_share_evenly_what_they_see() -> None:
    snapshot = read(Budget(), 0, reporters=3)
    assert ask(snapshot, taken_here=2) == BudgetAllowed()
    assert isinstance(ask(snapshot, taken_here=3), BudgetPostponed)


def test_what_is_paid_for_before_the_next_copy_need_not_ask_that() -> None:
    """10 tokens are three for each of three workers, and one more that another is paid for beside."""
    snapshot = read(Budget(), 0, reporters=3)
    answers = [ask(snapshot, taken_here=3, operation_id=f"op-{n}") for n in range(99)]
    postponed = [answer for answer in answers if isinstance(answer, BudgetPostponed)]
    promised = [answer.until for answer in postponed if answer.reserved]
    assert 50 < len(promised) < 80
    assert max(promised) < after(1.5)
    assert sum(answer.is_left is True for answer in postponed) == 99 - len(promised)
    assert asks_again(ask(snapshot, taken_here=4))


def test_what_first_attempts_alone_would_pay_for_before_the_next_copy_asks_that() -> None:
    """After a burst there are 58 tokens, and 6.4 more are expected each second that do not come."""
    assert asks_again(ask(BudgetSnapshot(58.0, 6.4, 2, NOON), taken_here=31))


def test_a_share_below_one_token_is_one() -> None:
    snapshot = read(Budget(), 0, reporters=99)
    assert ask(snapshot) == BudgetAllowed()
    assert isinstance(ask(snapshot, taken_here=1), BudgetPostponed)


def test_a_newcomer_takes_one_token_of_what_the_others_share_out_among_themselves() -> None:
    snapshot = read(Budget(), 0, reporters=2)
    assert ask(snapshot, taken_as_newcomer=0) == BudgetAllowed()
    assert asks_again(ask(snapshot, taken_as_newcomer=1))
    assert asks_again(ask(read(book(Budget(), 0, retries=10), 0, reporters=2), taken_as_newcomer=0))


def test_a_postponed_retry_says_whether_there_are_tokens_that_others_may_take() -> None:
    answers = [
        ask(snapshot, taken_here=1, taken_as_newcomer=1)
        for snapshot in (read(Budget(), 0), read(book(Budget(), 0, retries=10), 0))
    ]
    assert [isinstance(answer, BudgetPostponed) and answer.is_left for answer in answers] == [True, None]


def test_a_newcomer_that_seems_to_be_alone_takes_one_token_too() -> None:
    """After a quiet minute all workers are new, and each copy shows nobody else."""
    quiet = read(Budget(), 0)
    assert ask(quiet, taken_as_newcomer=0) == BudgetAllowed()
    assert asks_again(ask(quiet, taken_here=1, taken_as_newcomer=1))


def test_what_its_own_first_attempts_earned_nobody_takes_from_a_newcomer() -> None:
    settings, quiet = RetryBudgetSettings(ratio=0.5), read(Budget(), 0)
    goes = [
        ask(quiet, settings=settings, taken_here=taken, taken_as_newcomer=taken, first_attempts_here=6)
        == BudgetAllowed()
        for taken in range(5)
    ]
    assert goes == [True, True, True, False, False]


def test_a_postponed_retry_waits_until_its_debt_is_paid() -> None:
    answer = of_type(BudgetPostponed, ask(read(book(Budget(), 0, retries=30), 0)))
    assert answer.reserved
    # 21 tokens are missing at one a second, and a place within its worker's next token.
    assert after(21) <= answer.until < after(22)


@pytest.mark.parametrize(("missing", "seconds"), [(20, 4.0), (49, 9.8), (60, 20.0)])
def test_a_promise_counts_on_first_attempts_for_ten_seconds(missing: int, seconds: float) -> None:
    """At five a second fifty are paid for by then, and more at the least rate of one a second."""
    answer = of_type(BudgetPostponed, ask(BudgetSnapshot(1.0 - missing, 5.0, 1, NOON), now=NOON))
    assert after(seconds) <= answer.until < after(seconds + 1)


def test_nothing_is_promised_where_only_first_attempts_would_pay_for_it() -> None:
    settings = RetryBudgetSettings(ratio=1.0, minimum_per_second=0.0)
    answer = of_type(BudgetPostponed, ask(BudgetSnapshot(-60.0, 5.0, 1, NOON), settings=settings))
    assert not answer.reserved


def test_first_attempts_that_no_copy_shows_yet_earn_here_at_once() -> None:
    """A worker reports gathered failures after a second: until then its copy lacks its own first attempts."""
    settings = RetryBudgetSettings(ratio=0.5)
    empty = read(book(Budget(), 0, retries=10), 0, reporters=2)
    goes = [
        ask(empty, settings=settings, taken_here=taken, first_attempts_here=6) == BudgetAllowed()
        for taken in range(5)
    ]
    assert goes == [True, True, True, False, False]


def test_what_is_earned_here_pays_this_workers_part_of_the_debt_first() -> None:
    settings = RetryBudgetSettings(ratio=1.0)
    in_debt = read(book(Budget(), 0, retries=14), 0, reporters=2)
    assert in_debt.tokens == -4
    assert ask(in_debt, settings=settings, first_attempts_here=3) == BudgetAllowed()
    answer = of_type(BudgetPostponed, ask(in_debt, settings=settings, first_attempts_here=2))
    assert answer.reserved
    # One token is missing at one a second, and a place within its worker's next token.
    assert after(1) <= answer.until < after(3)


def test_postponed_retries_stand_in_a_row() -> None:
    snapshot = read(book(Budget(), 0, retries=10), 0, reporters=2)
    answers = [ask(snapshot, taken_here=taken, operation_id="op-1") for taken in range(2)]
    waits = [answer.until for answer in answers if isinstance(answer, BudgetPostponed) and answer.reserved]
    assert [later - waits[0] for later in waits] == [timedelta(seconds=s) for s in (0, 2)]


@pytest.mark.parametrize(("taken", "asking_again", "seconds"), [(2, 0, 3.0), (2, 4, 7.0), (0, 12, 13.0)])
def test_what_the_others_may_not_have_taken_is_not_waited_for(
    taken: int, asking_again: int, seconds: float
) -> None:
    """With as many of each other worker its turn would come after three times as long."""
    snapshot = read(book(Budget(), 0, retries=10), 0, reporters=3)
    answer = ask(snapshot, taken_here=taken, asking_again_here=asking_again)
    assert answer == BudgetPostponed(after(seconds), reserved=False)


@pytest.mark.parametrize(
    ("per_second", "reporters", "seconds"), [(1.0, 20, 3.0), (1.0, 1, 2.0), (50.0, 3, 0.08)]
)
def test_one_that_has_none_before_it_waits_for_few_of_the_others(
    per_second: float, reporters: int, seconds: float
) -> None:
    """Workers that all have one may come together: the next ones wait for that."""
    latest = [
        ask(BudgetSnapshot(0.0, per_second, reporters, NOON), operation_id=f"op-{n}") for n in range(99)
    ]
    assert all(isinstance(answer, BudgetPostponed) and answer.reserved for answer in latest)
    waits = [answer.until for answer in latest if isinstance(answer, BudgetPostponed)]
    assert after(0.9 * seconds) < max(waits) <= after(seconds)


def test_a_promise_is_never_for_the_past() -> None:
    snapshot = read(book(Budget(), 0, retries=10), 0)
    assert of_type(BudgetPostponed, ask(snapshot, now=after(100))).until == after(100)


def test_without_any_supply_nothing_is_promised() -> None:
    settings = RetryBudgetSettings(ratio=0.2, minimum_per_second=0)
    answer = of_type(BudgetPostponed, ask(BudgetSnapshot(0, 0, 1, NOON), settings=settings))
    assert not answer.reserved
    assert after(60) <= answer.until < after(120)


def test_the_rate_in_the_long_run_is_what_the_settings_allow() -> None:
    """An hour of a dead dependency: 5 first attempts a second, and everything wants to be retried at once."""
    budget, sent = Budget(), 0
    promised: list[datetime] = []
    for second in range(3_600):
        snapshot, taken = read(budget, second), 0
        for number in range(5):
            answer = ask(snapshot, taken_here=taken, operation_id=f"op-{second}-{number}")
            if isinstance(answer, BudgetPostponed) and not answer.reserved:
                continue
            taken += 1
            if isinstance(answer, BudgetAllowed):
                sent += 1
            else:
                promised.append(answer.until)
        budget = book(budget, second, firsts=5, retries=taken)
    sent += sum(until < after(3_600) for until in promised)
    allowed = 10 + 3_600 * (1 + 0.2 * 5)
    assert sent == pytest.approx(allowed, rel=0.02)


def test_it_travels_as_json() -> None:
    budget = book(Budget(), 0.25, firsts=3, retries=2)
    assert Budget.from_json(budget.to_json()) == budget
    assert RetryBudgetSettings.from_json(BUDGET.to_json()) == BUDGET


def test_a_reset_circuit_has_a_new_budget() -> None:
    desk = Desk()
    desk.hear(desk.report(0))
    desk.breaker = desk.breaker.__class__(budget=book(desk.breaker.budget, 1, retries=500))
    desk.control(2, ManualControl.RESET)
    assert desk.breaker.budget == Budget()


def test_nothing_is_promised_for_later_than_half_a_minute() -> None:
    for debt, is_promised in ((27, True), (31, False)):
        answer = of_type(BudgetPostponed, ask(read(book(Budget(), 0, retries=10 + debt), 0)))
        assert answer.reserved is is_promised
        assert is_promised or after(PROMISED_SECONDS / 2) <= answer.until < after(PROMISED_SECONDS)


@pytest.mark.parametrize(
    ("promised_at", "kept"), [(None, False), (after(-2.1), False), (after(-2), True), (after(9), True)]
)
def test_a_promise_that_is_over_for_two_seconds_is_void(promised_at: datetime | None, *, kept: bool) -> None:
    assert is_kept(promised_at, NOON) is kept
