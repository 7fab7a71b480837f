import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from durable_retry.circuit.cache import CircuitCache
from durable_retry.rules.circuit.breaker import ManualControl
from durable_retry.rules.circuit.calls import CallEnd, CallHealth
from durable_retry.rules.circuit.retry_budget import BudgetPostponed, RetryBudgetSettings
from durable_retry.rules.circuit.snapshot import Permitted, Refused
from durable_retry.rules.circuit.states import CircuitSettings, CircuitState
from durable_retry.rules.circuit.transitions import ManualAction
from durable_retry.rules.retry.admission import AdmissionState
from durable_retry.rules.retry.loop import TRANSPORT_SECONDS, Blocked, NeedsProbe, probe_message
from tests.support.builders import NOON, after, an_operation
from tests.support.narrowing import existing, of_type
from tests.support.shared_circuit import Copies

FRAGILE = CircuitSettings(minimum_calls=3, break_seconds=30)
FIRST = AdmissionState()


async def fail(stage: Copies, *, copy: CircuitCache | None = None, times: int = 1) -> None:
    for number in range(times):
        await attempt(copy or stage.copy, CallHealth.FAILURE, operation_id=f"op-f{number}")


async def attempt(copy: CircuitCache, verdict: CallHealth, *, operation_id: str = "op-1") -> None:
    permitted = of_type(Permitted, await copy.enter(operation_id, 1, FIRST))
    await copy.leave(permitted, CallEnd(verdict, 0.1))


async def ask(
    stage: Copies, operation_id: str = "op-1", admission: AdmissionState = FIRST
) -> Permitted | Blocked:
    return await stage.copy.enter(operation_id, 1, admission)


async def tripped(stage: Copies) -> None:
    """Fails until the circuit is open and the copy knows it."""
    await fail(stage)
    stage.moment.pass_(0.2)
    await fail(stage, times=3)
    await stage.flush_after(0.2)
    assert stage.shared.breaker.state is CircuitState.OPEN
    stage.moment.pass_(1.1)


async def probing() -> tuple[Copies, Permitted]:
    """Lets a circuit open and its break end, and asks it for a probe, as the orchestration of op-1 does."""
    stage = Copies(FRAGILE)
    await tripped(stage)
    stage.moment.pass_(30)
    assert isinstance(await ask(stage), NeedsProbe)
    message = probe_message(an_operation(operation_id="op-1"), 1, FRAGILE, stage.moment.now())
    stage.shared.breaker, answer = message.apply(stage.shared.breaker, stage.moment.now())
    assert isinstance(answer, Permitted)
    assert answer.lease_expires_at == stage.moment.now() + timedelta(seconds=10 + TRANSPORT_SECONDS)
    return stage, answer


async def throttled(lost: str = "") -> tuple[Copies, Permitted]:
    """Makes an attempt that is asked to pause until 20 s after noon; its report may be lost on its way."""
    stage = Copies(FRAGILE)
    permitted = of_type(Permitted, await ask(stage))
    stage.shared.delivers, stage.shared.is_down = lost != "delivery", lost == "task hub"
    await stage.copy.leave(permitted, CallEnd(throttled_until=after(20)))
    return stage, permitted


async def test_a_healthy_call_costs_one_read_a_second_and_no_message() -> None:
    stage = Copies()
    for _ in range(10):
        await attempt(stage.copy, CallHealth.SUCCESS)
        stage.moment.pass_(0.09)
    assert (stage.shared.reads, stage.shared.sent_reports) == (1, [])
    stage.moment.pass_(1)
    await attempt(stage.copy, CallHealth.SUCCESS)
    assert stage.shared.reads == 2


async def test_callers_that_come_together_share_one_read() -> None:
    stage = Copies()
    stage.shared.reads_may_go = asyncio.Event()
    asking = [asyncio.create_task(ask(stage, f"op-{number}")) for number in range(50)]
    await asyncio.sleep(0)
    stage.shared.reads_may_go.set()
    answers = await asyncio.gather(*asking)
    assert all(isinstance(answer, Permitted) and not answer.fail_open for answer in answers)
    assert stage.shared.reads == 1


async def test_a_caller_that_gives_up_leaves_the_reading_to_the_next() -> None:
    stage = Copies()
    stage.shared.reads_may_go = asyncio.Event()
    first, second = asyncio.create_task(ask(stage)), asyncio.create_task(ask(stage, "op-2"))
    await asyncio.sleep(0)
    first.cancel()
    stage.shared.reads_may_go.set()
    assert not of_type(Permitted, await second).fail_open


async def test_a_failure_near_a_trip_is_reported_at_once_and_others_of_the_same_moment_go_together() -> None:
    stage = Copies(FRAGILE)
    await fail(stage, times=4)
    assert len(stage.shared.sent_reports) == 1
    await stage.flush_after(0.1)
    assert [message.report.window.everything().failures for message in stage.shared.sent_reports] == [1, 3]


async def test_what_is_due_later_goes_by_itself() -> None:
    stage = Copies(FRAGILE)
    await fail(stage, times=2)
    stage.moment.pass_(0.1)  # The loop's own clock rings a tenth of a second later.
    async with asyncio.timeout(60):
        while len(stage.shared.sent_reports) < 2:  # noqa: ASYNC110 # what rings is the loop itself
            await asyncio.sleep(0.01)
    assert stage.shared.sent_reports[1].report.sequence == 2


async def test_the_worker_that_reported_the_failures_sees_the_trip_in_a_tenth_of_a_second() -> None:
    stage = Copies(FRAGILE)
    await fail(stage)
    stage.moment.pass_(0.05)
    await fail(stage, times=3)
    await stage.flush_after(0.1)
    assert stage.shared.breaker.state is CircuitState.OPEN
    stage.moment.pass_(0.1)
    assert isinstance(await ask(stage), Refused)
    reads = stage.shared.reads
    stage.moment.pass_(0.3)
    assert isinstance(await ask(stage), Refused)
    assert stage.shared.reads == reads, "what the copy shows is good for a second again"


async def test_an_open_circuit_refuses_and_the_wait_is_counted_once() -> None:
    stage = Copies(FRAGILE)
    await tripped(stage)
    assert of_type(Refused, await ask(stage)).base == stage.shared.breaker.retry_at
    assert isinstance(await ask(stage, admission=AdmissionState(waiting=True)), Refused)
    await stage.flush_after(1)
    assert stage.shared.breaker.waiting == 1


async def test_after_the_break_one_is_sent_to_ask_for_the_probe_and_the_others_wait_on() -> None:
    stage = Copies(FRAGILE)
    await tripped(stage)
    stage.moment.pass_(30)
    answers = [await ask(stage, f"op-{number}", AdmissionState(waiting=True)) for number in range(5)]
    assert answers[0] == NeedsProbe(FRAGILE)
    assert all(isinstance(answer, Refused) for answer in answers[1:])


async def test_a_probe_goes_under_its_lease_and_its_success_closes_the_circuit() -> None:
    stage, lease = await probing()
    permitted = await ask(stage, admission=AdmissionState(waiting=True, permit=lease))
    assert permitted == lease
    assert isinstance(permitted, Permitted)
    await stage.copy.leave(permitted, CallEnd(CallHealth.SUCCESS, 0.1))
    assert stage.shared.breaker.state is CircuitState.CLOSED


async def test_a_probe_whose_lease_expired_does_not_go() -> None:
    stage, lease = await probing()
    stage.moment.pass_(16)
    late = stage.copy.at_begin(AdmissionState(waiting=True, permit=lease), 10)
    assert isinstance(await ask(stage, admission=late), Refused)
    assert stage.shared.breaker.leases == (), "the next one need not wait for its end"


async def test_a_probe_that_failed_does_not_go_again_after_a_lost_turn() -> None:
    stage, lease = await probing()
    again = AdmissionState(waiting=True, permit=lease)
    permitted = await ask(stage, admission=again)
    assert isinstance(permitted, Permitted)
    await stage.copy.leave(permitted, CallEnd(CallHealth.FAILURE, 0.1))
    assert stage.shared.breaker.state is CircuitState.OPEN
    stage.moment.pass_(2)
    assert isinstance(await ask(stage, admission=again), Refused)
    stage.copy.reporting.close()


async def test_a_throttled_answer_pauses_every_process() -> None:
    stage, _ = await throttled()
    other = stage.another("w2")
    assert of_type(Refused, await other.enter("op-2", 1, FIRST)).base == after(20)
    assert stage.shared.breaker.state is CircuitState.CLOSED


@pytest.mark.parametrize("lost", ["delivery", "task hub"])
async def test_who_was_asked_to_pause_does_so_while_its_report_is_under_way(lost: str) -> None:
    stage, _ = await throttled(lost)
    for seconds in (0, 0.5, 1, 10, 8.4):
        stage.moment.pass_(seconds)
        assert of_type(Refused, await ask(stage, "op-2")).base == after(20)
    stage.moment.pass_(0.1)
    assert isinstance(await ask(stage, "op-2"), Permitted)


async def test_a_report_of_a_pause_that_a_later_one_overtook_still_holds_here() -> None:
    stage, permitted = await throttled("delivery")
    stage.shared.delivers = True
    stage.moment.pass_(0.2)
    await stage.copy.leave(permitted, CallEnd(CallHealth.FAILURE, 0.1))
    assert stage.shared.breaker.reporters.highest("w1") == 2
    stage.moment.pass_(1.1)
    assert isinstance(await ask(stage, "op-2"), Refused)


async def test_a_pause_that_a_person_ends_ends_here_too() -> None:
    stage, _ = await throttled()
    reset = ManualAction(ManualControl.RESET, after(1), "ada", "it is well")
    stage.shared.breaker = reset.apply(stage.shared.breaker, after(1))
    stage.moment.pass_(1.1)
    assert isinstance(await ask(stage, "op-2"), Permitted)


async def test_a_probe_that_was_granted_before_a_pause_became_known_does_not_go_and_returns_its_lease() -> (
    None
):
    stage, lease = await probing()
    stage.shared.delivers = False
    late = Permitted(1)
    await stage.copy.leave(late, CallEnd(throttled_until=after(60)))
    stage.shared.delivers = True
    stage.moment.pass_(0.1)
    answer = of_type(Refused, await ask(stage, admission=AdmissionState(waiting=True, permit=lease)))
    assert answer.base == after(60)
    assert stage.shared.breaker.leases == ()


async def test_a_hold_by_hand_stays_in_force_when_the_circuit_cannot_be_read_any_more() -> None:
    stage = Copies()
    held = ManualAction(ManualControl.OPEN, NOON, "ada", "maintenance", 60)
    stage.shared.breaker = held.apply(stage.shared.breaker, NOON)
    assert isinstance(await ask(stage), Refused)
    stage.shared.is_down = True
    stage.moment.pass_(59)
    assert isinstance(await ask(stage), Refused)
    stage.moment.pass_(1)
    assert isinstance(await ask(stage), Permitted)
    assert stage.copy.fail_open.calls == 1


@pytest.mark.shows("P6")
async def test_a_circuit_that_cannot_be_read_lets_everything_through_and_says_so_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Copies()
    stage.shared.is_down = True
    with caplog.at_level(logging.WARNING, logger="durable_retry.circuit.cache"):
        for number in range(30):
            assert of_type(Permitted, await ask(stage, f"op-{number}")).fail_open
            stage.moment.pass_(0.4)
        assert stage.shared.reads <= 12
        assert stage.copy.fail_open.calls == 30
        assert len([line for line in caplog.messages if "cannot be read" in line]) == 2
        stage.shared.is_down = False
        stage.moment.pass_(1)
        seeing = await ask(stage)
        stage.moment.pass_(2)
        await ask(stage)
    assert isinstance(seeing, Permitted)
    assert not seeing.fail_open
    (recovered,) = [line for line in caplog.messages if "can be read again" in line]
    assert recovered.endswith("can be read again; 30 attempts went on without it.")


async def test_a_circuit_that_does_not_answer_in_a_second_counts_as_unreadable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("durable_retry.circuit.cache.READ_SECONDS", 0.01)
    stage = Copies()
    stage.shared.reads_may_go = asyncio.Event()
    assert of_type(Permitted, await ask(stage)).fail_open


async def test_a_report_that_did_not_arrive_is_sent_again_unchanged_and_counts_once() -> None:
    stage = Copies(FRAGILE)
    await ask(stage)
    stage.shared.is_down = True
    await fail(stage)
    await stage.flush_after(0.5)
    assert len(stage.shared.sent_reports) == 1
    stage.shared.is_down = False
    await stage.flush_after(0.5)
    assert [message.report.sequence for message in stage.shared.sent_reports] == [1, 1]
    assert stage.shared.breaker.window.totals(stage.moment.now()).failures == 1


@pytest.mark.shows("W10")
async def test_a_report_of_a_probe_that_the_circuit_lost_is_sent_again_though_nothing_else_happens() -> None:
    stage, lease = await probing()
    stage.shared.delivers = False
    await stage.copy.leave(lease, CallEnd(CallHealth.SUCCESS, 0.1))
    stage.shared.delivers = True
    await stage.flush_after(5)
    assert stage.shared.breaker.state is CircuitState.CLOSED
    sent = len(stage.shared.sent_reports)
    for _ in range(3):
        await stage.flush_after(5)
    assert len(stage.shared.sent_reports) == sent, "it was counted"
    assert stage.copy.reporting.next_report_at() is None


async def test_a_report_of_a_pause_that_the_circuit_lost_is_sent_again() -> None:
    stage, _ = await throttled("delivery")
    stage.shared.delivers = True
    await stage.flush_after(5)
    assert stage.shared.breaker.throttled_until == after(20)


async def test_a_report_of_a_probe_is_not_sent_again_once_its_lease_is_over() -> None:
    stage, lease = await probing()
    stage.shared.delivers = False
    await stage.copy.leave(lease, CallEnd(CallHealth.SUCCESS, 0.1))
    sent = len(stage.shared.sent_reports)
    for _ in range(10):
        await stage.flush_after(5)
    assert len(stage.shared.sent_reports) == sent + 4
    assert stage.copy.reporting.next_report_at() is None


async def test_a_task_hub_that_stays_away_is_called_less_and_less_often() -> None:
    stage = Copies(FRAGILE)
    await ask(stage)
    stage.shared.is_down = True
    await fail(stage)
    sent_at = []
    for second in range(60):
        before = len(stage.shared.sent_reports)
        await stage.flush_after(1)
        if len(stage.shared.sent_reports) > before:
            sent_at.append(second + 1)
    assert sent_at[:5] == [1, 3, 7, 15, 23]
    assert {message.report.sequence for message in stage.shared.sent_reports} == {1}


async def heard(stage: Copies) -> None:
    """Let the others hear of the worker, for a second."""
    stage.copy.buffer.announce(stage.moment.now())
    for _ in range(3):
        await stage.copy.reporting.flush()
        await stage.copy.refresh_snapshot()
        stage.moment.pass_(1.01)


async def test_retries_beyond_the_budget_are_promised_for_later_and_then_go_unasked() -> None:
    stage = Copies(budget=RetryBudgetSettings(ratio=0.2, minimum_per_second=1))
    await heard(stage)
    answers = [await stage.copy.enter(f"op-{number}", 2, FIRST) for number in range(12)]
    assert all(isinstance(answer, Permitted) for answer in answers[:10])
    postponed = of_type(BudgetPostponed, answers[10])
    assert postponed.reserved
    assert postponed.until > NOON
    promised = AdmissionState(promised_at=postponed.until)
    taken = stage.copy.buffer.here.retries
    assert isinstance(await stage.copy.enter("op-10", 2, promised), Permitted)
    assert stage.copy.buffer.here.retries == taken


async def test_a_new_process_takes_one_token_until_the_others_know_of_it() -> None:
    stage = Copies(FRAGILE, RetryBudgetSettings(ratio=0.2, minimum_per_second=1))
    await fail(stage)
    other = stage.another("w2")
    answers = [await other.enter(f"op-{number}", 2, FIRST) for number in range(5)]
    assert [isinstance(answer, Permitted) for answer in answers] == [True, False, False, False, False]
    assert not any(isinstance(answer, BudgetPostponed) and answer.reserved for answer in answers)
    stage.moment.pass_(0.9)
    assert isinstance(await other.enter("op-6", 2, FIRST), BudgetPostponed)
    stage.moment.pass_(0.2)
    answers = [await other.enter(f"op-{number}", 2, FIRST) for number in range(5)]
    assert all(isinstance(answer, Permitted) for answer in answers)


async def test_a_new_process_that_may_take_no_token_makes_itself_known() -> None:
    stage = Copies(budget=RetryBudgetSettings(ratio=0.2, minimum_per_second=1))
    await heard(stage)
    for number in range(30):
        await stage.copy.enter(f"op-{number}", 2, FIRST)
    await stage.flush_after(1)
    other = stage.another("w2")
    for _ in range(20):
        assert not of_type(BudgetPostponed, await other.enter("op-2", 2, FIRST)).reserved
    assert stage.shared.breaker.reporters.highest("w2") == 1


async def test_a_process_that_fell_silent_is_new_again() -> None:
    stage = Copies(budget=RetryBudgetSettings(ratio=0.2, minimum_per_second=1))
    for _ in range(3):
        await fail(stage)
        stage.moment.pass_(1.1)
    other = stage.another("w2")
    stage.moment.pass_(60)
    await fail(stage, copy=other)
    stage.moment.pass_(1)
    await other.reporting.flush()
    answers = [await stage.copy.enter(f"op-{number}", 2, FIRST) for number in range(3)]
    assert [isinstance(answer, Permitted) for answer in answers] == [True, False, False]


async def gone(stage: Copies, fresh: CircuitCache, due: Mapping[str, AdmissionState]) -> list[float]:
    """Let many retries come at once; return after how many seconds each of them went."""
    began, went = stage.moment.now(), []
    waiting = {name: (began, admission) for name, admission in due.items()}
    while waiting:
        for name, (until, asking) in list(waiting.items()):
            if until > stage.moment.now():
                continue
            answer = await fresh.enter(name, 2, asking)
            if isinstance(answer, Permitted):
                del waiting[name]
                went.append((stage.moment.now() - began).total_seconds())
            else:
                assert isinstance(answer, BudgetPostponed)
                waiting[name] = (
                    answer.until,
                    replace(asking, promised_at=answer.until if answer.reserved else None),
                )
        stage.moment.pass_(0.1)
        await fresh.reporting.flush()
    return went


async def test_promises_that_are_over_are_void() -> None:
    """After a restart or a break as many go in a second as ever."""
    stage = Copies(budget=RetryBudgetSettings(ratio=0.2, minimum_per_second=1))
    await heard(stage)
    promised = dict[str, AdmissionState]()
    for number in range(40):
        answer = await stage.copy.enter(f"op-{number}", 2, FIRST)
        if isinstance(answer, BudgetPostponed) and answer.reserved:
            promised[f"op-{number}"] = AdmissionState(promised_at=answer.until)
    assert len(promised) > 20
    stage.moment.pass_(60)
    went = await gone(stage, stage.another("w2"), promised)
    *others, most = sorted(Counter(int(at) for at in went).values())
    assert most <= 11, "what is saved up goes in one second, once the others know of the worker"
    assert max(others) <= 4
    assert max(went) < 35, "what was promised and not used is paid for once"


@pytest.mark.parametrize("kills", [1, 2, 5])
@pytest.mark.parametrize(("due", "within_seconds"), [(10, 5), (30, 25)])
async def test_processes_that_were_killed_keep_no_share_of_the_level(
    kills: int, due: int, within_seconds: float
) -> None:
    """Nothing was spent: the level has ten retries, and gets one more each second."""
    stage = Copies(budget=RetryBudgetSettings(ratio=0.2, minimum_per_second=1))
    copy = stage.copy
    for number in range(kills):
        await fail(stage, copy=copy)
        stage.moment.pass_(3)
        copy = stage.another(f"started-{number}")
    stage.moment.pass_(1)
    due_now = {f"op-{number}": FIRST for number in range(due)}
    assert max(await gone(stage, copy, due_now)) < within_seconds


@pytest.mark.parametrize("is_reported", [False, True])
async def test_a_new_copy_does_not_forget_what_was_taken_here_and_has_not_arrived(
    *, is_reported: bool
) -> None:
    stage = Copies(budget=RetryBudgetSettings(ratio=0.2, minimum_per_second=1))
    await heard(stage)
    stage.shared.sent_reports.clear()
    stage.shared.delivers = False
    for number in range(10):
        await stage.copy.enter(f"op-{number}", 2, FIRST)
    stage.moment.pass_(1.01)
    if is_reported:
        await stage.copy.reporting.flush()
    assert sum(message.report.retries for message in stage.shared.sent_reports) == (10 if is_reported else 0)
    answers = [await stage.copy.enter(f"op-late-{number}", 2, FIRST) for number in range(5)]
    assert sum(isinstance(answer, Permitted) for answer in answers) <= 2


async def test_a_circuit_that_is_switched_off_asks_and_counts_nothing_but_the_budget() -> None:
    off = CircuitSettings(enabled=False, minimum_calls=1)
    stage = Copies(off, RetryBudgetSettings(ratio=0.2, minimum_per_second=1))
    permitted = of_type(Permitted, await ask(stage))
    await stage.copy.leave(permitted, CallEnd(CallHealth.FAILURE, throttled_until=after(60)))
    await stage.copy.enter("op-2", 2, FIRST)
    await stage.flush_after(1)
    assert stage.shared.breaker.window.totals(stage.moment.now()).calls == 0
    assert stage.shared.breaker.throttled_until is None
    assert sum(message.report.retries for message in stage.shared.sent_reports) == 1
    assert isinstance(await ask(stage, "op-3"), Permitted)


async def test_a_pause_holds_up_even_who_is_let_past_the_circuit() -> None:
    stage = Copies(FRAGILE)
    assert stage.copy.pause("op-1", stage.moment.now()) is None
    permitted = of_type(Permitted, await ask(stage))
    until = stage.moment.now() + timedelta(seconds=100)
    await stage.copy.leave(permitted, CallEnd(throttled_until=until, throttled_by="429"))
    learnt = existing(stage.copy.pause("op-1", stage.moment.now()))
    assert (learnt.base, learnt.throttled) == (until, True)
    for control in ManualControl:
        if control is ManualControl.RESET:
            continue
        action = ManualAction(control, stage.moment.now(), "ada", "maintenance")
        stage.shared.breaker = action.apply(stage.shared.breaker, stage.moment.now())
        stage.moment.pass_(1.1)
        other = stage.another("w2")
        await other.refresh_snapshot()
        assert existing(other.pause("op-1", stage.moment.now())).base >= until
        # A probe that was permitted before keeps to it as well.
        probe = AdmissionState(permit=Permitted(1, "op-1:2", stage.moment.now() + timedelta(seconds=60)))
        assert isinstance(await other.enter("op-1", 2, probe), Refused)
    stage.moment.pass_(100)
    await other.refresh_snapshot()
    assert other.pause("op-1", stage.moment.now()) is None
    assert Copies(CircuitSettings(enabled=False)).copy.pause("op-1", NOON) is None
