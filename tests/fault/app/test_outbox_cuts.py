"""The outbox, cut at every write, before and after it, and with every step executed twice.

Whatever happens, at the end:

1. every event is sent or failed, exactly as it would have been without the cut;
2. every event that was sent arrived at least once, always under its own id, and in order;
3. the one that could not be delivered has exactly one dead letter;
4. the index lists every event once, where it belongs, and nothing as pending.
"""

import asyncio
from typing import Any, Literal

import pytest

from activities.operation import commit
from activities.outbox import outbox_give_up, outbox_pending, publish
from durable_retry.base.names import DeadLetterReason, EventState
from durable_retry.features.dead_letter_lists.pages import list_dead_letters
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter
from durable_retry.features.outbox.event_store import events_of, mark_pending
from durable_retry.features.outbox.index_store import list_ended, list_notes, read_note
from durable_retry.features.outbox.rules.outbox import OutboxEvent
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.dead_letters.record import KeptDeadLetter
from orchestrators.outbox import outbox
from tests.support.azurite import Storage
from tests.support.builders import NOON, a_life
from tests.support.cuts import Activity, CutError, Cuts, Mode, PartStage, Turns, on_the_clock_of

pytestmark = pytest.mark.long


ACTIVITIES: dict[str, Activity] = {
    "outbox_pending": outbox_pending,
    "publish": lambda request: publish(request, TaskHub("hub")),
    "outbox_give_up": outbox_give_up,
}
COMMIT: dict[str, Activity] = {"commit": commit}
ROWS = {"table": "Orders", "partition_key": "customer-1", "row_key": "order-1", "values": {}, "mode": "merge"}

type Place = Literal["own", "beside a handler's writes"]


def success_of(run_id: str, queue: str, place: Place) -> dict[str, Any]:
    """A success with three events: the second one's target is down, the others go to a queue."""
    operation_id, _, run = run_id.partition(".")
    return {
        "operation_id": operation_id,
        "life": a_life(operation_id).to_json() | {"run": int(run)},
        "result": {"value": 1},
        "writes": [] if place == "own" else [ROWS],
        "events": [
            {"type": "first", "queue": queue, "data": 1},
            {"type": "second", "dependency": "absent", "path": "/hook", "data": 2},
            {"type": "third", "queue": queue, "data": 3},
        ],
    }


def played(cuts: Cuts, run_id: str, queue: str, *, place: Place = "own", twice: bool = False) -> None:
    """Commit a success and send its events, whatever it takes."""
    steps = Turns({**COMMIT, **ACTIVITIES}, twice=twice)
    stage = PartStage(outbox, f"outbox-{run_id}", {"operation_id": run_id}, steps.answer)
    with cuts.in_place(), on_the_clock_of(stage):
        while isinstance(steps.answer("commit", success_of(run_id, queue, place)), Exception):
            pass  # The operation calls its commit until it succeeds.
        stage.run()


async def ended(state: EventState) -> list[OutboxEvent]:
    items, cursor = await list_ended(state, 200, None)
    while cursor is not None:
        more, cursor = await list_ended(state, 200, cursor)
        items += more
    return items


async def dead_letters() -> list[KeptDeadLetter]:
    wanted = DeadLetterFilter(reason=DeadLetterReason.OUTBOX_UNDELIVERABLE.value)
    page = await list_dead_letters(wanted, limit=200, cursor=None)
    records = list(page.records)
    while page.cursor is not None:
        page = await list_dead_letters(wanted, limit=200, cursor=page.cursor)
        records += page.records
    return records


async def state_of(run_id: str) -> dict[str, Any]:
    """All that the outbox says of an operation."""
    sent, failed = [await ended(state) for state in (EventState.SENT, EventState.FAILED)]
    letters = await dead_letters()
    return {
        "states": [event.state.value for event in await events_of(run_id)],
        "listed as sent": sorted(e.event_id for e in sent if e.operation_id == run_id.partition(".")[0]),
        "listed as failed": sorted(e.event_id for e in failed if e.operation_id == run_id.partition(".")[0]),
        "note": await read_note(run_id),
        "dead letters": [letter.reason.value for letter in letters if letter.key == f"{run_id}.2"],
    }


def check(storage: Storage, run_id: str, queue: str) -> None:
    assert asyncio.run(state_of(run_id)) == {
        "states": ["sent", "failed", "sent"],
        "listed as sent": [f"{run_id}.1", f"{run_id}.3"],
        "listed as failed": [f"{run_id}.2"],
        "note": None,
        "dead letters": ["OutboxUndeliverable"],
    }, run_id
    arrived = [body["id"] for body in storage.peeked(queue)]
    assert set(arrived) == {f"{run_id}.1", f"{run_id}.3"}, arrived
    assert arrived == sorted(arrived), "the order holds, also among duplicates"


@pytest.mark.parametrize(
    ("mode", "place"),
    [
        pytest.param("before", "own", marks=pytest.mark.long),
        pytest.param("before", "beside a handler's writes"),
        pytest.param("after", "own", marks=pytest.mark.long),
        pytest.param("after", "beside a handler's writes", marks=pytest.mark.long),
    ],
)
def test_a_cut_at_any_write_changes_nothing_in_the_end(storage: Storage, mode: Mode, place: Place) -> None:
    at = 1
    while True:
        cuts = Cuts(at, mode)
        name = f"{mode}-{place.partition(' ')[0]}-{at}"
        played(cuts, f"op-{name}.1", name, place=place)
        check(storage, f"op-{name}.1", name)
        if cuts.missed:
            break
        at += 1
    assert at > 15, "so many writes there are"


def test_steps_that_are_executed_twice_change_nothing_in_the_end(storage: Storage) -> None:
    played(Cuts(), "op-twice.1", "executed-twice", twice=True)
    check(storage, "op-twice.1", "executed-twice")


@pytest.mark.usefixtures("storage")
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("mode", ["before", "after"])
def test_a_resend_that_is_cut_leaves_the_event_as_it_was_or_to_the_sweeper(mode: Mode, number: int) -> None:
    """Event 1 was sent and event 2 failed: both can be sent again, and both lists stay true."""
    run_id = f"op-resend-{mode}-{number}.1"
    played(Cuts(), run_id, f"resend-{mode}-{number}")
    at = 1
    while True:
        cuts = Cuts(at, mode)
        cut = resent(cuts, f"{run_id}.{number}")
        state = asyncio.run(events_of(run_id))[number - 1].state
        noted = asyncio.run(read_note(run_id)) is not None
        assert noted or (cut and state is not EventState.PENDING), "a pending event is on the index"
        if noted:
            sent_by_the_sweeper(run_id)
        summary = asyncio.run(state_of(run_id))
        assert (summary["states"], summary["note"]) == (["sent", "failed", "sent"], None)
        assert summary["listed as sent"] == [f"{run_id}.1", f"{run_id}.3"]
        assert summary["listed as failed"] == [f"{run_id}.2"]
        if not cut:
            break
        at += 1
    assert at > 3, "so many writes there are"


def resent(cuts: Cuts, event_id: str) -> bool:
    """Make an event pending again; True when that was cut short."""
    with cuts.in_place():
        try:
            asyncio.run(mark_pending(event_id, NOON))
        except CutError:
            return True
    return False


def sent_by_the_sweeper(run_id: str) -> None:
    steps = Turns(dict(ACTIVITIES))
    stage = PartStage(outbox, f"outbox-{run_id}", {"operation_id": run_id}, steps.answer)
    with on_the_clock_of(stage):
        stage.run()


@pytest.mark.usefixtures("storage")
def test_a_note_without_events_stays_as_long_as_a_commit_may_be_under_way() -> None:
    cuts = Cuts(3, "before")  # After the marker and the note, before the transaction.
    steps = Turns(COMMIT)
    with cuts.in_place():
        assert isinstance(steps.answer("commit", success_of("op-cut.1", "cut", "own")), CutError)
    sent_by_the_sweeper("op-cut.1")
    notes, _ = asyncio.run(list_notes(200, None))
    assert "op-cut.1" in {note.outbox_id for note in notes}
