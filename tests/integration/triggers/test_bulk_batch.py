import asyncio
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import AsyncMock

import pytest

from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.names import Category, OperationState
from durable_retry.circuit.entity import CircuitEntity
from durable_retry.dead_letters.records import (
    find_dead_letter,
    find_dead_letters,
    keep_operation,
    move_dead_letter,
)
from durable_retry.features.dead_letter_lists.counts import read_summary
from durable_retry.features.dead_letter_lists.pages import list_dead_letters
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter
from durable_retry.features.lookup import actions as lookups
from durable_retry.features.replay.actions import replay_dead_letter
from durable_retry.features.replay.rules import ReplayBody
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations.actions import submit
from durable_retry.operations.status import find_status
from durable_retry.rules.circuit.breaker import ManualControl
from durable_retry.rules.circuit.freeze import Freeze
from durable_retry.rules.circuit.states import CircuitSettings, CircuitState
from durable_retry.rules.circuit.transitions import ManualAction
from durable_retry.rules.config.dependencies_file import Config
from durable_retry.rules.dead_letters.record import Status, archived
from durable_retry.runtime import clock
from durable_retry.settings.configuration import dependencies, using
from durable_retry_console.bulk.actions import bulk_page
from durable_retry_console.bulk.document import BulkItem, ItemOutcome
from durable_retry_console.bulk.ends import bulk_ends, items_page
from durable_retry_console.bulk.items import bulk_batch
from durable_retry_console.bulk.replay import RECHECK, held_until
from durable_retry_console.bulk.shapes import BatchInput, BatchResult, BulkAction
from durable_retry_console.bulk.store import keep_items, list_items
from tests.support.builders import NOON, an_entry, an_operation, failing
from tests.support.cuts import CutError, Cuts, Mode, cut_at_the_start
from tests.support.hub import TaskHubStage
from tests.support.narrowing import existing

pytestmark = pytest.mark.usefixtures("own_tables")


async def change_circuit(
    hub: TaskHubStage, control: ManualControl, seconds: float | None = None, limit_key: str | None = None
) -> None:
    """Put the circuit of payments, or of one of its limit keys, into another state and wait until it is."""
    circuit = CircuitEntity(hub.binding, "payments", limit_key)
    action = ManualAction(
        control, clock.now(), by="ada", reason="maintenance", for_seconds=seconds, limit_key=limit_key
    )
    await circuit.control(action)
    wanted = CircuitState.FORCED_OPEN if control is ManualControl.OPEN else CircuitState.CLOSED
    async with asyncio.timeout(60):
        while (await circuit.read()).state is not wanted:  # noqa: ASYNC110 # asks another process
            await asyncio.sleep(0.02)


async def kept(count: int, prefix: str = "op", **changes: Any) -> list[str]:
    entries = [an_entry(f"{prefix}-{number}", deadline_at=None, **changes) for number in range(count)]
    return [await keep_operation(entry, clock.now()) for entry in entries]


async def act(hub: TaskHubStage, **asked: Any) -> BatchResult:
    """Carry out one batch of a bulk action, of a replay unless another is named."""
    given = {"action_id": "bulk-1", "action": BulkAction.REPLAY, "now": clock.now(), **asked}
    request = BatchInput(**given | {"ids": tuple(given["ids"])}).to_json()
    return BatchResult.from_json(await bulk_batch(request, hub.binding))


async def batch(
    hub: TaskHubStage, ids: Iterable[str], action_id: str = "bulk-1", now: datetime | None = None
) -> BatchResult:
    more = {"note": "all of them", "by": "ada", "now": now or clock.now()}
    return await act(hub, ids=ids, action_id=action_id, **more)


async def status_of(dead_letter_id: str) -> Status:
    return existing(await find_dead_letter(dead_letter_id)).status


async def test_a_page_holds_the_newest_first(hub: TaskHubStage) -> None:
    ids = await kept(3)
    request = {"action": "replay", "filter": DeadLetterFilter(status=Status.OPEN).to_json()}
    page = await bulk_page(request | {"limit": 2, "cursor": None}, hub.binding)
    assert page["ids"] == [ids[2], ids[1]]
    rest = await bulk_page(request | {"limit": 2, "cursor": page["cursor"]}, hub.binding)
    assert rest["ids"] == [ids[0]]


async def test_a_batch_is_replayed_with_its_note(hub: TaskHubStage) -> None:
    hub.answer = failing(0)
    ids = await kept(3)
    assert await batch(hub, ids) == BatchResult(started=3)
    record = existing(await find_dead_letter(ids[0]))
    assert [(replay.note, replay.action_id) for replay in record.replays] == [("all of them", "bulk-1")]


async def test_the_same_batch_again_counts_what_it_did_before_and_does_nothing(hub: TaskHubStage) -> None:
    hub.answer = failing(0)
    ids = await kept(3)
    first = await batch(hub, ids)
    assert await batch(hub, ids) == first
    assert (await batch(hub, ids, "bulk-2")).skipped == 3


@pytest.mark.long
@pytest.mark.parametrize("mode", ["before", "after"])
async def test_a_batch_that_is_cut_at_any_write_is_all_done_when_it_is_made_again(
    hub: TaskHubStage, mode: Mode
) -> None:
    hub.answer = failing(0)
    cuts = Cuts()
    while not cuts.missed:
        cuts = Cuts(cuts.at + 1, mode)
        ids = await kept(1, f"op-cut-{cuts.at}")
        with suppress(CutError), cuts.in_place():
            await batch(hub, ids)
        await check_all_done(hub, ids)
    assert cuts.at > 10


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_batch_that_is_cut_at_the_start_is_all_done_when_it_is_made_again(
    hub: TaskHubStage, *, after: bool
) -> None:
    hub.answer = failing(0)
    ids = await kept(3)
    with cut_at_the_start(after=after):
        await batch(hub, ids)
    await check_all_done(hub, ids)


async def check_all_done(hub: TaskHubStage, ids: list[str]) -> None:
    """Make the batch again, as a host does: each is started, once, and on no list of open ones."""
    assert (await batch(hub, ids)).started == len(ids)
    assert (await read_summary(clock.now())).open == 0
    assert (
        await list_dead_letters(DeadLetterFilter(status=Status.OPEN), limit=10, cursor=None)
    ).records == []
    for record in await find_dead_letters(ids):
        assert record is not None
        assert await hub.binding.wait_for_end(record.operation_id or "", 20) is not None
        attempts = [given for _, given in hub.activities if given["operation"]["replay_of"] == record.id]
        assert len(attempts) == len(record.replays) == 1


async def test_what_is_gone_put_away_or_cannot_run_holds_nothing_up(hub: TaskHubStage) -> None:
    hub.answer = failing(0)
    good, away = await kept(2)
    await move_dead_letter(away, lambda record: archived(record, clock.now()))
    bad = await keep_operation(an_entry("op-bad", dependency="gone"), clock.now())
    unknown = "dl-" + "0" * 32
    step = await batch(hub, [good, away, bad, unknown])
    assert (step.started, step.skipped) == (1, 2)
    assert [failure.id for failure in step.failures] == [bad]
    assert "gone" in step.failures[0].detail
    kept_items = await items(hub)
    assert [each["key"] is None for each in kept_items if each["id"] == unknown] == [True]
    assert all(each["key"] for each in kept_items if each["id"] != unknown)
    found = {each["id"]: (each["outcome"], each["detail"]) for each in kept_items}
    assert found == {
        good: ("done", None),
        away: ("skipped", "the dead letter is archived"),
        bad: ("failed", step.failures[0].detail),
        unknown: ("skipped", "there is no such dead letter"),
    }


async def test_what_cannot_be_replayed_now_says_why(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durable_retry.features.replay.actions._WAITS_SECONDS", (0.0,))
    monkeypatch.setattr(TaskHub, "start_operation", AsyncMock(return_value=False))
    step = await batch(hub, await kept(1))
    assert [failure.detail for failure in step.failures] == ["its operation is running"]


async def items(
    hub: TaskHubStage, action_id: str = "bulk-1", action: BulkAction = BulkAction.REPLAY
) -> list[dict[str, Any]]:
    page = await items_page(hub.binding, action_id, action, limit=50, cursor=None)
    return [item.to_json() for item in page.items]


async def test_the_items_say_what_became_of_each_replay_the_latest_first(hub: TaskHubStage) -> None:
    good, bad = [*(await kept(1, "op-good")), *(await kept(1, "op-bad"))]
    began = clock.now()
    for number, dead_letter_id in enumerate((good, bad)):
        hub.answer = failing(number, Category.MALFORMED, 422)
        await act(hub, ids=[dead_letter_id], now=began + timedelta(seconds=number))
        await hub.binding.wait_for_end(f"op-{'bad' if number else 'good'}-0", 20)
    late, early = await items(hub)
    assert (early["id"], early["status"], early["failed_again"]) == (good, "succeeded", None)
    assert [each["key"] for each in (early, late)] == ["key-op-good-0", "key-op-bad-0"]
    assert (late["id"], late["operation_id"], late["status"]) == (bad, "op-bad-0", "dead_lettered")
    assert late["failed_again"] is not None
    assert early["at"] == to_rfc3339(began)
    page = await items_page(hub.binding, "bulk-1", BulkAction.REPLAY, limit=1, cursor=None)
    rest = await items_page(hub.binding, "bulk-1", BulkAction.REPLAY, limit=1, cursor=page.next_cursor)
    assert [item.to_json() for item in (*page.items, *rest.items)] == [late, early]
    assert rest.next_cursor is None


async def ends(hub: TaskHubStage, action: str = "replay") -> tuple[int, int, int]:
    counted = await bulk_ends({"action_id": "bulk-1", "action": action, "cursor": None}, hub.binding)
    assert counted["cursor"] is None
    return counted["succeeded"], counted["failed_again"], counted["under_way"]


async def test_ends_are_counted_as_they_come_and_outlive_the_operations(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(name: str, given: dict[str, Any]) -> Any:
        operation_id = given.get("operation_id") or given.get("operation", {}).get("operation_id", "")
        if "bad" in operation_id:
            return failing(1, Category.MALFORMED, 422)(name, given)
        return failing(1 if "slow" in operation_id else 0)(name, given)

    hub.answer = answer
    ids = [
        dead_letter_id for name in ("bad", "good", "slow") for dead_letter_id in await kept(2, f"op-{name}")
    ]
    await batch(hub, ids)
    for name in ("bad-0", "bad-1", "good-0", "good-1"):
        await hub.binding.wait_for_end(f"op-{name}", 20)
    assert await ends(hub) == (2, 2, 2)

    async def gone(*_: str) -> None:
        return None

    monkeypatch.setattr("durable_retry_console.bulk.ends.part_of", gone)
    monkeypatch.setattr("durable_retry_console.bulk.ends.find_status", gone)
    assert await ends(hub) == (4, 2, 0)


@dataclass(frozen=True)
class Replayed:
    """A dead letter that was replayed, as an item shows it; it failed again as another where there is one."""

    id: str
    seconds: int = 0
    failed_again: str | None = None
    resumes: int = 0
    status: OperationState = OperationState.DEAD_LETTERED

    @property
    def item(self) -> BulkItem:
        is_over = self.status is not OperationState.WAITING_ORDER
        return BulkItem(
            id=self.id,
            outcome=ItemOutcome.DONE,
            resumes=self.resumes,
            succeeded=self.status is OperationState.SUCCEEDED if is_over else None,
            status=self.status,
            failed_again=self.failed_again,
            ended_at=NOON + timedelta(seconds=self.seconds) if is_over else None,
        )


async def proof(hub: TaskHubStage, replayed: list[Replayed], resumes: int = 0) -> dict[str, Any]:
    """Keep what was replayed, and return what the count says of the proof."""
    await keep_items("bulk-1", [(f"1-{place:02d}", each.item) for place, each in enumerate(replayed)])
    request = {"action_id": "bulk-1", "action": "replay", "cursor": None, "resumes": resumes}
    return await bulk_ends(request, hub.binding)


async def test_the_latest_ends_are_told_the_newest_first_and_why_the_newest_failed(hub: TaskHubStage) -> None:
    body = json.dumps({"errors": [{"pointer": "/amount", "detail": "too much"}]})
    first, again = [
        await keep_operation(an_entry("op-1", **changes) | {"failure": {"body": body}}, clock.now())
        for changes in ({}, {"replay_of": "dl-1"})
    ]
    good = [Replayed(f"dl-{at}", at, status=OperationState.SUCCEEDED) for at in range(20)]
    newest = Replayed(first, 60, failed_again=again)
    counted = await proof(hub, [*good, newest, Replayed("dl-x", 30, failed_again="dl-y")])
    assert (counted["ended"], len(counted["latest"])) == (22, 20)
    assert counted["latest"][:3] == [
        {"at": "2026-11-21T12:01:00Z", "failed": True, "why": "still 422 at /amount"},
        {"at": "2026-11-21T12:00:30Z", "failed": True},
        {"at": "2026-11-21T12:00:19Z", "failed": False},
    ]


@pytest.mark.parametrize(
    ("error", "status", "why"),
    [
        ("no such amount 6", OperationState.DEAD_LETTERED, "still 422: no such amount 6"),
        ("no such customer", OperationState.DEAD_LETTERED, "now 422: no such customer"),
        (None, OperationState.CANCELLED, "now cancelled"),
    ],
)
async def test_a_failure_that_is_another_one_is_told_from_the_same(
    hub: TaskHubStage, error: str | None, status: OperationState, why: str
) -> None:
    (first,) = await kept(1)
    again = None
    if error is not None:
        again = await keep_operation(an_entry("op-0", error=error, replay_of=first), clock.now())
    counted = await proof(hub, [Replayed(first, failed_again=again, status=status)])
    assert [end["why"] for end in counted["latest"]] == [why]


@pytest.mark.parametrize("has_feature", [True, False])
async def test_what_cannot_be_asked_about_is_skipped(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch, *, has_feature: bool
) -> None:
    (clear,) = await kept(1)
    (unclear,) = await kept(1, "op-x", category="ambiguous", reason="AmbiguousOutcome")
    if not has_feature:
        monkeypatch.setattr("durable_retry_console.bulk.replay.of_feature", lambda *_place: None)
    result = await act(hub, action=BulkAction.LOOKUP, ids=[clear, unclear])
    assert (result.started, result.skipped, result.failures) == (0, 2, ())
    details = [item["detail"] for item in await items(hub, action=BulkAction.LOOKUP)]
    wanted = ["the dependency payments has no lookup", lookups._IS_KNOWN]
    assert sorted(map(str, details)) == (wanted if has_feature else ["the app has no lookup"] * 2)
    assert [await status_of(each) for each in (clear, unclear)] == [Status.OPEN] * 2


async def test_a_proof_counts_what_was_sent_since_the_resume_or_waits_in_a_lane(hub: TaskHubStage) -> None:
    before, since = Replayed("dl-1"), Replayed("dl-2", resumes=1, status=OperationState.SUCCEEDED)
    behind = Replayed("dl-3", resumes=1, status=OperationState.WAITING_ORDER)
    counted = await proof(hub, [before, since, behind], resumes=1)
    assert (counted["succeeded"], counted["failed_again"], counted["under_way"]) == (1, 1, 1)
    assert (counted["ended"], [end["failed"] for end in counted["latest"]]) == (2, [False])


async def test_an_item_says_when_it_ended_and_after_how_many_resumes_its_turn_came(hub: TaskHubStage) -> None:
    hub.answer = failing(0)
    ids = await kept(2)
    await act(hub, ids=ids, resumes=2)
    began = clock.now()
    for each in ("op-0", "op-1"):
        await hub.binding.wait_for_end(each, 20)
    request = {"action_id": "bulk-1", "action": "replay", "cursor": None, "resumes": 2}
    counted = await bulk_ends(request, hub.binding)
    assert counted["ended"] == 2
    (items, _) = await list_items("bulk-1", limit=5, cursor=None)
    assert {item.resumes for _, item in items} == {2}
    for _, item in items:
        assert item.ended_at is not None
        assert abs(item.ended_at - began) < timedelta(minutes=1)


async def test_a_replay_whose_run_does_not_show_yet_is_under_way(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub still shows the run that the dead letter came from."""
    hub.answer = failing(0)
    (dead_letter_id,) = await kept(1)
    await batch(hub, [dead_letter_id])

    async def first_run(*_: str) -> dict[str, Any]:
        at = to_rfc3339(clock.now())
        return {"status": "dead_lettered", "dead_letter": {"id": dead_letter_id}, "updated_at": at}

    monkeypatch.setattr("durable_retry_console.bulk.ends.find_status", first_run)
    assert await ends(hub) == (0, 0, 1)


async def test_what_was_archived_by_mistake_is_restored_to_where_it_was(hub: TaskHubStage) -> None:
    was_open, was_archived = await kept(2)
    archive = await act(hub, action=BulkAction.ARCHIVE, ids=[was_archived], now=clock.now())
    assert archive.started == 1
    step = await act(
        hub, action=BulkAction.RESTORE, note="a wrong filter", ids=[was_open, was_archived], now=clock.now()
    )
    assert (step.started, step.skipped, step.failures) == (1, 1, ())
    restored = existing(await find_dead_letter(was_archived))
    assert (restored.status, restored.archived_at) == (Status.OPEN, None)
    assert [note["text"] for note in restored.notes] == ["a wrong filter"]
    done = {each["id"]: each["outcome"] for each in await items(hub, action=BulkAction.RESTORE)}
    assert done == {was_archived: "done", was_open: "skipped"}


async def test_what_a_batch_did_before_it_was_cut_short_counts_as_done(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    away, *ids = await kept(3)
    await move_dead_letter(away, lambda record: archived(record, clock.now(), "bob"))
    hub.answer = failing(9)
    await submit(hub.binding, an_operation(created_at=clock.now(), deadline_at=None))
    async with asyncio.timeout(60):
        while (await find_status(hub.binding, "op-test") or {}).get("status") != "waiting_retry":  # noqa: ASYNC110 # asks over gRPC
            await asyncio.sleep(0.02)
    asked: dict[str, Any] = {"by": "ada", "now": clock.now()}
    archive = asked | {"action": BulkAction.ARCHIVE, "ids": [away, *ids]}
    cancel = asked | {"action_id": "bulk-2", "action": BulkAction.CANCEL, "ids": ["op-test"]}

    for request in (archive, cancel):
        with monkeypatch.context() as cut_short, suppress(CutError):
            cut_short.setattr("durable_retry_console.bulk.items.keep_items", AsyncMock(side_effect=CutError))
            await act(hub, **request)
    await hub.binding.wait_for_end("op-test", 20)
    step = await act(hub, **archive)
    assert (step.started, step.skipped) == (2, 1)
    outcomes = {each["id"]: each["outcome"] for each in await items(hub)}
    assert outcomes == {away: "skipped", **dict.fromkeys(ids, "done")}
    assert (await act(hub, **cancel)).started == 1
    assert (await act(hub, **cancel | {"by": "bob"})).skipped == 1


async def test_what_was_archived_is_over(hub: TaskHubStage) -> None:
    await act(hub, action=BulkAction.ARCHIVE, ids=await kept(2))
    assert await ends(hub, "archive") == (2, 0, 0)


async def test_an_item_whose_operation_was_replayed_once_more_shows_its_own_end(hub: TaskHubStage) -> None:
    (first,) = await kept(1)
    hub.answer = failing(1, Category.MALFORMED, 422)
    await batch(hub, [first])
    await hub.binding.wait_for_end("op-0", 20)
    record = existing(await find_dead_letter(first))
    second = await keep_operation(an_entry("op-0") | {"operation": record.replays[-1].operation}, clock.now())
    hub.answer = failing(0)
    await replay_dead_letter(hub.binding, second, ReplayBody(), clock.now())
    await hub.binding.wait_for_end("op-0", 20)
    (item,) = await items(hub)
    assert (item["status"], item["failed_again"]) == ("dead_lettered", second)


async def test_a_batch_that_is_made_again_lists_its_items_once(hub: TaskHubStage) -> None:
    hub.answer = failing(0)
    ids, now = await kept(2), clock.now()
    for _ in range(2):
        await batch(hub, ids, now=now)
    assert [(each["id"], each["outcome"]) for each in await items(hub)] == [(each, "done") for each in ids]


async def test_other_actions_have_items_too(hub: TaskHubStage) -> None:
    (good,) = await kept(1)
    await act(hub, action=BulkAction.ARCHIVE, ids=[good, "dl-gone"])
    await act(hub, action=BulkAction.CANCEL, ids=["op-gone"], action_id="bulk-2")
    found = [
        *(await items(hub, action=BulkAction.ARCHIVE)),
        *(await items(hub, "bulk-2", BulkAction.CANCEL)),
    ]
    assert [(each["id"], each["outcome"], each["detail"], each["status"]) for each in found] == [
        (good, "done", None, None),
        ("dl-gone", "skipped", "there is no such dead letter", None),
        ("op-gone", "skipped", "there is no such operation", None),
    ]


async def test_an_open_circuit_leaves_its_dead_letters_until_it_may_close(hub: TaskHubStage) -> None:
    hub.answer = failing(0)
    ids = await kept(2)
    until = clock.now() + timedelta(minutes=10)
    await change_circuit(hub, ManualControl.OPEN, 600)
    step = await batch(hub, ids)
    assert (step.started, step.left) == (0, tuple(ids))
    assert step.held_until is not None
    assert abs(step.held_until - until) < timedelta(seconds=1)
    assert await status_of(ids[0]) is Status.OPEN
    renamed = replace(dependencies().dependencies["payments"], was=("old",))
    with using(Config({"payments": renamed})):
        assert await held_until(hub.binding, "old") is not None
    await change_circuit(hub, ManualControl.CLOSE)
    assert (await batch(hub, step.left)).started == 2


async def test_an_open_circuit_of_a_limit_key_leaves_the_dead_letters_of_that_key_alone(
    hub: TaskHubStage,
) -> None:
    hub.answer = failing(0)
    held, free = [(await kept(1, key, limit_key=key))[0] for key in ("a", "b")]
    others = [*(await kept(1)), free]
    dependency = replace(dependencies().dependencies["payments"], circuit=CircuitSettings(by="limit_key"))
    with using(Config({"payments": dependency})):
        await change_circuit(hub, ManualControl.OPEN, 600, limit_key="a")
        step = await batch(hub, [held, *others])
        assert (step.started, step.left) == (2, (held,))
        await change_circuit(hub, ManualControl.OPEN, 300)
        assert await held_until(hub.binding, "payments", "b") is not None  # a hold by hand is for every key
        await change_circuit(hub, ManualControl.CLOSE, limit_key="a")
        await change_circuit(hub, ManualControl.CLOSE)
        assert (await batch(hub, step.left)).started == 1


async def test_until_when_is_said_by_the_clock_of_the_orchestrator(hub: TaskHubStage) -> None:
    ids = await kept(1)
    await change_circuit(hub, ManualControl.OPEN, 600)
    behind = clock.now() - timedelta(seconds=30)
    step = await act(hub, ids=ids, now=behind)
    assert step.held_until is not None
    assert timedelta(seconds=570) < step.held_until - behind <= timedelta(seconds=600)


async def test_a_circuit_that_is_open_without_end_is_asked_again(hub: TaskHubStage) -> None:
    await change_circuit(hub, ManualControl.OPEN)
    held = existing(await held_until(hub.binding, "payments"))
    assert timedelta(0) < held - clock.now() <= RECHECK


async def test_a_hold_that_ends_late_is_looked_at_again_since_somebody_may_end_it(hub: TaskHubStage) -> None:
    await change_circuit(hub, ManualControl.OPEN, 86_400)
    held = existing(await held_until(hub.binding, "payments"))
    assert held - clock.now() <= timedelta(seconds=CircuitSettings().max_break_seconds)


@pytest.mark.parametrize("enabled", [True, False])
async def test_a_hold_of_everything_leaves_all_dead_letters(hub: TaskHubStage, *, enabled: bool) -> None:
    hub.answer = failing(0)
    ids = await kept(2)
    dependency = replace(dependencies().dependencies["payments"], circuit=CircuitSettings(enabled=enabled))
    with using(Config({"payments": dependency})):
        circuit, now = CircuitEntity(hub.binding, "payments"), clock.now()
        await circuit.freeze(Freeze(now, now, "ada", "a drill"))
        async with asyncio.timeout(60):
            while (await circuit.read()).freeze is None:  # noqa: ASYNC110 # asks another process
                await asyncio.sleep(0.02)
        step = await batch(hub, ids)
    assert (step.started, step.left) == (0, tuple(ids))


async def test_what_has_no_circuit_is_not_held(hub: TaskHubStage) -> None:
    assert await held_until(hub.binding, "payments") is None
    assert await held_until(hub.binding, "never-configured") is None
