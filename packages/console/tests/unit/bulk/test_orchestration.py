import json
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.names import NUDGE_EVENT
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter
from durable_retry_console.bulk.names import BULK_PAGE, CANCEL_BULK_EVENT, RESUME_BULK_EVENT
from durable_retry_console.bulk.orchestration import RESUMABLE_FOR, bulk_action
from durable_retry_console.bulk.proof import Proof
from durable_retry_console.bulk.shapes import BatchPace, BulkAction, BulkInput, BulkProgress
from tests.support.builders import NOON, an_operation
from tests.support.stage import Stage


class Letters:
    """The open dead letters of a test, and what replaying them gives; the stage's `Activities`."""

    def __init__(self, count: int) -> None:
        self.ids = [f"dl-{number}" for number in range(count)]
        self.replayed: list[tuple[datetime, list[str]]] = []
        self.failing: set[str] = set()
        self.held: dict[str, datetime] = {}
        self.broken = 0
        self.failing_again: set[str] = set()
        self.minutes_under_way = 0.0
        self.resumes: dict[str, int] = {}
        self.stage: Stage | None = None

    def __call__(self, name: str, given: dict[str, Any]) -> Any:
        if self.broken:
            self.broken -= 1
            return ConnectionError("storage is gone")
        if name == "bulk_ends":
            counts = self._ends(given["cursor"])
            return counts if "resumes" not in given else counts | self._proof(given)
        if name == "bulk_batch":
            self.resumes |= dict.fromkeys(given["ids"], given.get("resumes", 0))
        return self._page(given) if name == "bulk_page" else self._batch(given["ids"])

    def _ends(self, cursor: str | None) -> dict[str, Any]:
        """Count those replayed: the latest five batches at once, the others in a second part."""
        parts = self._part(cursor)
        ended = [one for at, batch in parts if self._has_ended(at) for one in batch]
        failed = len([one for one in ended if one in self.failing_again])
        return {
            "succeeded": len(ended) - failed,
            "failed_again": failed,
            "under_way": sum(len(batch) for _, batch in parts) - len(ended),
            "cursor": "5" if cursor is None and self.replayed[:-5] else None,
        }

    def _part(self, cursor: str | None) -> list[tuple[datetime, list[str]]]:
        return self.replayed[-5:] if cursor is None else self.replayed[:-5]

    def _has_ended(self, at: datetime) -> bool:
        assert self.stage is not None
        return at <= self.stage.now - timedelta(minutes=self.minutes_under_way)

    def _proof(self, given: dict[str, Any]) -> dict[str, Any]:
        parts = [(at, batch) for at, batch in self._part(given["cursor"]) if self._has_ended(at)]
        ended = [
            {"at": to_rfc3339(at), "failed": one in self.failing_again, "why": "still 422 at /amount"}
            for at, batch in reversed(parts)
            for one in batch
            if self.resumes[one] == given["resumes"]
        ]
        return {"ended": len(ended), "latest": ended[:20]}

    def _page(self, given: dict[str, Any]) -> dict[str, Any]:
        first = 0 if given["cursor"] is None else int(given["cursor"])
        last = first + given["limit"]
        return {"ids": self.ids[first:last], "cursor": str(last) if last < len(self.ids) else None}

    def _batch(self, ids: list[str]) -> dict[str, Any]:
        assert self.stage is not None
        now = self.stage.now
        left = [one for one in ids if self.held.get(one, now) > now]
        done = [one for one in ids if one not in left and one not in self.failing]
        if done:
            self.replayed.append((now, done))
        return {
            "started": len(done),
            "failures": [{"id": one, "detail": "no"} for one in ids if one in self.failing],
            "left": left,
            "held_until": to_rfc3339(min(self.held[one] for one in left)) if left else None,
        }

    @property
    def all_replayed(self) -> list[str]:
        return [one for _, batch in self.replayed for one in batch]


def staged(letters: Letters, rate: float = 5, stop_at_failed: float | None = None) -> Stage:
    proof = None if stop_at_failed is None else Proof(stop_at_failed=stop_at_failed, since=NOON)
    given = BulkInput(
        action_id="bulk-1",
        action=BulkAction.REPLAY,
        filter=DeadLetterFilter().to_json(),
        rate_per_second=rate,
        matched=len(letters.ids),
        created_at=NOON,
        progress=BulkProgress(proof=proof),
    )
    stage = Stage(an_operation(), letters, orchestrator=bulk_action)
    stage._begin(json.dumps(given.to_json()))
    stage.executions = 1
    letters.stage = stage
    return stage


def test_no_batch_goes_early_where_timers_fire_early() -> None:
    letters = Letters(30)
    stage = staged(letters, rate=0.7)
    stage.whole_seconds = True
    stage.run()
    times = [at for at, _ in letters.replayed]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert min(gaps) >= BatchPace.of(0.7).interval


@pytest.mark.parametrize("count", [0, 1, 5, 6, 250])
def test_every_dead_letter_is_replayed_once(count: int) -> None:
    letters = Letters(count)
    document = staged(letters).run()
    assert (document["status"], document["started"]) == ("completed", count)
    assert letters.all_replayed == letters.ids


@pytest.mark.parametrize(("rate", "count", "seconds"), [(5, 50, 9), (0.5, 4, 6), (100, 300, 2.75)])
def test_the_rate_is_kept(rate: float, count: int, seconds: float) -> None:
    letters = Letters(count)
    staged(letters, rate).run()
    assert letters.replayed[-1][0] - NOON == timedelta(seconds=seconds)


@pytest.mark.parametrize("minutes", [40, pytest.param(180, marks=pytest.mark.long)])
def test_the_history_stays_short_however_long_a_circuit_is_open(minutes: int) -> None:
    letters = Letters(12)
    letters.held = dict.fromkeys(letters.ids[3:], NOON + timedelta(minutes=minutes))
    stage = staged(letters)
    stage.answer = lambda name, given: _seen_every_15_seconds(letters(name, given), stage)
    document = stage.run()
    assert (document["status"], document["started"]) == ("completed", 12)
    assert sorted(letters.all_replayed) == sorted(letters.ids)
    assert stage.longest_history < 250


@pytest.mark.parametrize("circuit_is_open_for", [1, 70, 99])
def test_what_waits_for_a_circuit_keeps_nothing_else_back(circuit_is_open_for: int) -> None:
    letters, opens_at = Letters(350), NOON + timedelta(hours=1)
    letters.held = dict.fromkeys(letters.ids[:circuit_is_open_for], opens_at)
    document = staged(letters).run()
    assert (document["status"], document["started"]) == ("completed", 350)
    assert sorted(letters.all_replayed) == sorted(letters.ids)
    others = [one for at, batch in letters.replayed if at < opens_at for one in batch]
    assert set(others) == set(letters.ids[circuit_is_open_for:])


def test_where_a_page_and_more_waits_for_a_circuit_no_further_page_is_read() -> None:
    letters, opens_at = Letters(1_000), NOON + timedelta(hours=1)
    letters.held = dict.fromkeys(letters.ids, opens_at)
    stage, pages = staged(letters), 0

    def answer(name: str, given: dict[str, Any]) -> Any:
        nonlocal pages
        pages += name == BULK_PAGE and stage.now < opens_at
        return letters(name, given)

    stage.answer = answer
    assert stage.run()["started"] == 1_000
    assert pages == 1


def _seen_every_15_seconds(answer: Any, stage: Stage) -> Any:
    if answer.get("held_until") is not None:
        return answer | {"held_until": to_rfc3339(stage.now + timedelta(seconds=15))}
    return answer


@pytest.mark.parametrize("letters", [300, pytest.param(2_000, marks=pytest.mark.long)])
def test_the_history_stays_short_however_many_there_are(letters: int) -> None:
    few, many = staged(Letters(100)), staged(Letters(letters))
    few.run()
    many.run()
    assert many.executions == letters // 100
    assert many.longest_history <= few.longest_history + 1


def test_what_cannot_be_replayed_is_reported_and_holds_nothing_up() -> None:
    letters = Letters(10)
    letters.failing = {"dl-3"}
    document = staged(letters).run()
    assert (document["started"], document["failed"]) == (9, 1)
    assert document["failures"] == [{"id": "dl-3", "detail": "no"}]


def test_it_waits_while_a_circuit_is_open_and_loses_nothing() -> None:
    letters = Letters(10)
    letters.held = {"dl-2": NOON + timedelta(minutes=5)}
    stage = staged(letters)
    seen = []
    stage.before_turn = lambda at: seen.append(at.custom_status)
    document = stage.run()
    assert sorted(letters.all_replayed) == sorted(letters.ids)
    assert document["started"] == 10
    waits = [shown["waiting_until"] for shown in seen if shown and "waiting_until" in shown]
    assert waits == ["2026-11-21T12:05:00Z"]


def test_a_cancellation_ends_it_after_the_batch_under_way() -> None:
    letters = Letters(50)
    stage = staged(letters)

    def cancel(at: Stage) -> None:
        if len(letters.replayed) == 2:
            at.raise_event(CANCEL_BULK_EVENT, {})
            at.before_turn = lambda _stage: None

    stage.before_turn = cancel
    document = stage.run()
    assert (document["status"], document["started"]) == ("cancelled", 10)


def test_a_cancellation_during_the_wait_for_a_circuit_ends_it() -> None:
    letters = Letters(1)
    letters.held = {"dl-0": NOON + timedelta(days=1)}
    stage = staged(letters)
    stage.run_until_waiting()
    stage._fire_next_timer()  # of the rate
    began = stage.now
    assert stage.run_until_waiting()["waiting_until"] == to_rfc3339(NOON + timedelta(days=1))
    stage.raise_event(CANCEL_BULK_EVENT, {})
    assert stage.run_until_waiting()["status"] == "cancelled"
    assert stage.now == began


def test_a_nudge_ends_the_wait_whose_timer_was_lost_once_it_is_over() -> None:
    letters, until = Letters(1), NOON + timedelta(days=1)
    letters.held = {"dl-0": until}
    stage = staged(letters)
    stage.run_until_waiting()
    stage._fire_next_timer()  # of the rate
    assert stage.run_until_waiting()["due_at"] == to_rfc3339(until)
    stage.timers.clear()
    for now, replayed in ((NOON + timedelta(hours=1), []), (until, ["dl-0"])):
        stage.now = now
        stage.raise_event(NUDGE_EVENT, {})
        stage.run_until_waiting()
        assert letters.all_replayed == replayed


@pytest.mark.parametrize(
    ("works", "started"), [(0, 0), (1, 0), (2, 5)], ids=["a page", "the first batch", "a later batch"]
)
def test_a_cancellation_ends_at_once_the_repetition_of_what_our_own_side_fails_to_do(
    works: int, started: int
) -> None:
    letters, calls = Letters(20), 0

    def answer(name: str, given: dict[str, Any]) -> Any:
        nonlocal calls
        calls += 1
        return letters(name, given) if calls <= works else ConnectionError("storage is gone")

    stage = staged(letters)
    stage.answer = answer
    while calls < works + 4:
        stage._fire_next_timer() if not stage.inbox else stage.turn()
    before = stage.now
    stage.raise_event(CANCEL_BULK_EVENT, {})
    shown = stage.run_until_waiting()
    assert (shown["status"], shown["started"], stage.now) == ("cancelled", started, before)
    stage.answer = letters
    document = stage.run()
    assert (document["status"], document["started"], letters.all_replayed) == (
        "cancelled",
        started,
        letters.ids[:started],
    )


def test_a_cancellation_survives_into_the_next_execution() -> None:
    letters = Letters(300)
    stage = staged(letters, 5)

    def cancel(at: Stage) -> None:
        if len(letters.all_replayed) == 100 and at.executions == 1:
            at.raise_event(CANCEL_BULK_EVENT, {})
            at.before_turn = lambda _stage: None

    stage.before_turn = cancel
    assert stage.run()["status"] == "cancelled"
    assert len(letters.all_replayed) <= 105


def test_storage_that_is_gone_for_a_while_only_delays() -> None:
    letters = Letters(5)
    letters.broken = 3
    assert staged(letters).run()["started"] == 5


def counts(document: dict[str, Any]) -> tuple[str, int, int, int, int]:
    names = ("started", "succeeded", "failed_again", "under_way")
    started, succeeded, failed_again, under_way = (document[name] for name in names)
    return document["status"], started, succeeded, failed_again, under_way


def test_the_summary_says_how_what_was_replayed_ended() -> None:
    letters = Letters(70)
    letters.failing = {"dl-69"}
    letters.failing_again = set(letters.ids) - {"dl-0"}
    document = staged(letters).run()
    assert counts(document) == ("completed", 69, 1, 68, 0)
    assert document["failed"] == 1


@pytest.mark.parametrize("minutes", [3, 4_000])
def test_it_is_not_complete_before_what_it_replayed_has_ended(minutes: int) -> None:
    letters = Letters(20)
    letters.minutes_under_way = minutes
    stage = staged(letters)
    shown = []
    stage.before_turn = lambda at: shown.append(at.custom_status and counts(at.custom_status))
    document = stage.run()
    ended_at = letters.replayed[-1][0] + timedelta(minutes=minutes)
    assert counts(document) == ("completed", 20, 20, 0, 0)
    assert timedelta(0) <= stage.now - ended_at <= min(timedelta(minutes=minutes) / 7, timedelta(minutes=15))
    assert ("running", 20, 0, 0, 20) in shown
    assert stage.longest_history < 250


def test_a_cancelled_one_goes_on_counting_what_it_replayed() -> None:
    letters = Letters(50)
    letters.minutes_under_way = 60
    stage = staged(letters)
    stage.run_until_waiting()

    def cancel(at: Stage) -> None:
        if len(letters.replayed) == 2:
            at.raise_event(CANCEL_BULK_EVENT, {})
            at.before_turn = lambda _stage: None

    stage.before_turn = cancel
    while stage.now < NOON + timedelta(minutes=1):
        stage._fire_next_timer()
        stage.run_until_waiting()
    assert counts(stage.custom_status) == ("cancelled", 10, 0, 0, 10)
    document = stage.run()
    assert counts(document) == ("cancelled", 10, 10, 0, 0)


def test_a_cancellation_while_it_only_counts_is_shown() -> None:
    letters = Letters(5)
    letters.minutes_under_way = 60
    stage = staged(letters)
    stage.run_until_waiting()
    while stage.now < NOON + timedelta(minutes=1):
        stage._fire_next_timer()
        stage.run_until_waiting()
    assert counts(stage.custom_status) == ("running", 5, 0, 0, 5)
    stage.raise_event(CANCEL_BULK_EVENT, {})
    assert counts(stage.run_until_waiting()) == ("cancelled", 5, 0, 0, 5)
    assert counts(stage.run()) == ("cancelled", 5, 5, 0, 0)


def play(stage: Stage, until: Callable[[], bool]) -> None:
    """Play until something is so, which it must be within an hour of the stage's time."""
    ends = stage.now + timedelta(hours=1)
    while not until():
        assert stage.now < ends
        if not stage.inbox:
            stage._fire_next_timer()
        stage.turn()
    stage.run_until_waiting()


def has_stopped(stage: Stage) -> bool:
    return bool((stage.custom_status or {}).get("status") == "stopped")


def played_to_stop(letters: Letters, rate: float = 5, stop_at_failed: float = 0.5) -> Stage:
    stage = staged(letters, rate, stop_at_failed)
    play(stage, lambda: has_stopped(stage))
    return stage


def resume(stage: Stage, stopped_at: str | None = None) -> None:
    stage.raise_event(RESUME_BULK_EVENT, {"stopped_at": stopped_at or stage.custom_status["stopped_at"]})


def test_a_replay_that_proves_itself_sends_one_then_five_then_the_rest() -> None:
    letters = Letters(40)
    letters.minutes_under_way = 1
    document = staged(letters, 10, stop_at_failed=0.5).run()
    assert counts(document) == ("completed", 40, 40, 0, 0)
    assert [len(batch) for _, batch in letters.replayed] == [1, 5, 10, 10, 10, 4]
    assert letters.all_replayed == letters.ids
    first, five, ten, *_ = (at for at, _ in letters.replayed)
    minute = timedelta(minutes=1)
    assert minute <= five - first < minute * 1.1
    assert minute <= ten - five < minute * 1.1


def test_what_cannot_be_replayed_proves_nothing() -> None:
    letters = Letters(9)
    letters.failing = {"dl-0", "dl-3"}
    staged(letters, stop_at_failed=0.5).run()
    assert [batch for _, batch in letters.replayed] == [
        ["dl-1"],
        ["dl-2", "dl-4", "dl-5", "dl-6"],
        ["dl-7"],
        ["dl-8"],
    ]


def test_it_stops_where_the_first_fails_again() -> None:
    letters = Letters(4_000)
    letters.failing_again = set(letters.ids)
    stage = played_to_stop(letters)
    assert stage.custom_status["reason"] == "1 of 4,000 replayed: still 422 at /amount"
    assert counts(stage.custom_status) == ("stopped", 1, 0, 1, 0)
    assert letters.all_replayed == ["dl-0"]


@pytest.mark.parametrize(("failing", "started"), [(3, 40), (4, 6)], ids=["half", "more"])
def test_it_stops_where_more_than_the_share_of_the_first_six_fails_again(failing: int, started: int) -> None:
    letters = Letters(40)
    letters.failing_again = {f"dl-{number}" for number in range(1, failing + 1)}
    stage = staged(letters, stop_at_failed=0.5)
    play(stage, lambda: stage.ended or has_stopped(stage))
    assert len(letters.all_replayed) == started


def test_it_stops_while_it_sends_where_the_last_twenty_fail_again() -> None:
    letters = Letters(4_000)
    letters.failing_again = set(letters.ids[1_000:])
    stage = played_to_stop(letters)
    assert 1_010 < len(letters.all_replayed) < 1_060
    assert "of the last 20 failed again: still 422" in stage.custom_status["reason"]
    assert stage.longest_history < 250


@pytest.mark.parametrize("stop_at_failed", [0.5, 1.0])
def test_one_that_bears_it_does_not_stop(stop_at_failed: float) -> None:
    letters = Letters(60)
    letters.failing_again = set(letters.ids if stop_at_failed == 1 else letters.ids[1::2])
    document = staged(letters, stop_at_failed=stop_at_failed).run()
    assert (document["status"], document["started"]) == ("completed", 60)


def test_all_that_was_sent_completes_it_however_it_ended() -> None:
    letters = Letters(1)
    letters.failing_again = {"dl-0"}
    assert counts(staged(letters, stop_at_failed=0.5).run()) == ("completed", 1, 0, 1, 0)


def test_a_stopped_one_counts_what_is_under_way_and_starts_nothing_more() -> None:
    letters = Letters(100)
    letters.failing_again = set(letters.ids[6:])
    stage = played_to_stop(letters)
    started = len(letters.all_replayed)
    document = stage.run()
    assert counts(document) == ("stopped", started, 6, started - 6, 0)
    assert stage.now - NOON >= RESUMABLE_FOR
    assert stage.longest_history < 250


def test_a_resumed_one_proves_itself_again_and_goes_on_with_the_rest() -> None:
    letters = Letters(60)
    letters.failing_again = set(letters.ids[:20])
    stage = played_to_stop(letters)
    letters.failing_again -= set(letters.ids[1:])
    resume(stage)
    document = stage.run()
    assert counts(document) == ("completed", 60, 59, 1, 0)
    assert [len(batch) for _, batch in letters.replayed[:3]] == [1, 1, 5]
    assert letters.all_replayed == letters.ids
    assert "reason" not in document


def test_a_resumed_one_stops_again_and_a_resume_that_comes_twice_is_of_the_first_stop() -> None:
    letters = Letters(60)
    letters.failing_again = set(letters.ids)
    stage = played_to_stop(letters)
    first_stop = stage.custom_status["stopped_at"]
    resume(stage)
    resume(stage)
    play(stage, lambda: stage.custom_status.get("stopped_at", first_stop) != first_stop)
    resume(stage, first_stop)
    shown = stage.run_until_waiting()
    assert counts(shown) == ("stopped", 2, 0, 2, 0)
    assert shown["reason"] == "2 of 60 replayed: still 422 at /amount"


def test_a_cancellation_ends_the_wait_for_the_first_at_once() -> None:
    letters = Letters(60)
    letters.minutes_under_way = 30
    stage = staged(letters, stop_at_failed=0.5)
    play(stage, lambda: stage.now >= NOON + timedelta(minutes=5))
    before = stage.now
    stage.raise_event(CANCEL_BULK_EVENT, {})
    assert counts(stage.run_until_waiting()) == ("cancelled", 1, 0, 0, 1)
    assert stage.now == before
    assert counts(stage.run()) == ("cancelled", 1, 1, 0, 0)


def test_a_stopped_one_can_be_cancelled() -> None:
    letters = Letters(60)
    letters.failing_again = set(letters.ids)
    stage = played_to_stop(letters)
    stage.raise_event(CANCEL_BULK_EVENT, {})
    assert counts(stage.run()) == ("cancelled", 1, 0, 1, 0)
    assert letters.all_replayed == ["dl-0"]


def test_what_waits_for_a_circuit_proves_itself_when_its_turn_comes() -> None:
    letters = Letters(30)
    letters.held = dict.fromkeys(letters.ids, NOON + timedelta(minutes=5))
    stage = staged(letters, stop_at_failed=0.5)
    assert stage.run()["started"] == 30
    assert sorted(letters.all_replayed) == sorted(letters.ids)
    assert [len(batch) for _, batch in letters.replayed[:3]] == [1, 5, 5]


def test_the_history_stays_short_however_long_the_first_takes() -> None:
    letters = Letters(10)
    letters.minutes_under_way = 1_000
    stage = staged(letters, stop_at_failed=0.5)
    assert counts(stage.run()) == ("completed", 10, 10, 0, 0)
    assert stage.longest_history < 250


def test_a_stopped_one_can_be_resumed_however_long_what_it_sent_takes() -> None:
    letters = Letters(9)
    letters.failing_again = {"dl-0"}
    stage = staged(letters, stop_at_failed=0.5)

    def keep_under_way(at: Stage) -> None:
        letters.minutes_under_way = 100_000 if has_stopped(at) else 0

    stage.before_turn = keep_under_way
    stage.run_until_waiting()
    while stage.now < NOON + timedelta(days=1):
        stage._fire_next_timer()
        stage.run_until_waiting()
    assert counts(stage.custom_status) == ("stopped", 1, 0, 0, 1)
    assert stage.longest_history < 250
    resume(stage)
    assert counts(stage.run()) == ("completed", 9, 8, 1, 0)


def test_the_answer_to_what_a_lost_turn_asked_for_is_taken_for_nothing_else() -> None:
    """It may have asked for a page, a batch or a count under the number of what is asked for now."""
    letters, answers = Letters(6), dict[str, Any]()
    stage = staged(letters, stop_at_failed=0.5)
    wrong = {BULK_PAGE: "bulk_ends", "bulk_batch": BULK_PAGE, "bulk_ends": "bulk_batch"}

    def answer(name: str, given: dict[str, Any]) -> Any:
        answers[name] = letters(name, given)
        return answers.pop(wrong[name], None) or answers[name]

    stage.answer = answer
    document = stage.run()
    assert (document["status"], document["started"]) == ("completed", 6)
    assert sorted(set(letters.all_replayed)) == letters.ids
