from typing import Any, Final

import pytest
from playwright.sync_api import Route, expect

from durable_retry.base.answers import marked
from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.masking import MASKED
from durable_retry.base.names import EventState
from durable_retry.features.outbox.rules.outbox import unreadable_event
from durable_retry.rules.dead_letters.document import DeadLetterDocument
from durable_retry.rules.dead_letters.record import Status, unreadable_record
from durable_retry.rules.operations.completion import unreadable_document
from tests.support.browser import Window
from tests.support.builders import NOON

WHY: Final = "ValueError: its output is no JSON object: the worker died"
AT: Final = to_rfc3339(NOON)
LETTER_ID, EVENT_ID = f"dl-{'7' * 32}", "op-7.1.1"
NOTHING: Final[dict[str, Any]] = {
    "attempts": [],
    "next_attempt_at": None,
    "why": None,
    "dead_letter_id": None,
    "correlation_id": None,
    "data": None,
}


def a_letter(status: Status) -> dict[str, Any]:
    record = unreadable_record(LETTER_ID, WHY, status=status, reason=None, created_at=AT)
    return DeadLetterDocument.of(record, MASKED).to_json()


LETTER: Final = a_letter(Status.REPLAYED)
OPERATION: Final = unreadable_document("op-7", {}, NOON, dead_letter_id="", detail=WHY) | marked(WHY)
EVENT: Final = unreadable_event(EVENT_ID, EventState.FAILED, NOON, WHY).listed().to_json()
BATCH: Final[dict[str, Any]] = {
    "batch_id": "batch-7",
    "status": "running",
    "max_concurrency": 0,
    "tolerated_failures": 0,
    "counts": dict.fromkeys(
        (
            *("total", "pending", "running", "waiting_retry", "waiting_circuit"),
            *("succeeded", "dead_lettered", "cancelled"),
        ),
        0,
    ),
    "created_at": AT,
    "finished_at": None,
} | marked(WHY)
SAGA: Final[dict[str, Any]] = {
    "saga_id": "saga-7",
    "status": "stopped",
    **{name: [] for name in ("steps", "stands", "undone", "unknown")},
    "created_at": AT,
    "updated_at": AT,
} | marked(WHY)


@pytest.mark.parametrize(
    ("place", "item"),
    [
        ("dead-letters", LETTER),
        ("operations", OPERATION),
        ("outbox", EVENT),
        ("batches", BATCH),
        ("sagas", SAGA),
    ],
)
def test_a_row_that_cannot_be_read_is_marked_in_its_list(
    window: Window, place: str, item: dict[str, Any]
) -> None:
    def answer(route: Route) -> None:
        route.fulfill(status=200, json={"items": [item], "next_cursor": None})

    window.page.route(f"**/api/{place}?**", answer)
    window.open(place)
    mark = window.page.locator("td .badge", has_text="Unreadable")
    expect(mark).to_be_visible()
    expect(mark).to_have_attribute("title", WHY)
    expect(window.page.get_by_text("The dashboard itself failed")).to_have_count(0)


@pytest.mark.parametrize(
    ("place", "document"),
    [
        (f"dead-letters/{LETTER_ID}", LETTER),
        (f"dead-letters/{LETTER_ID}", a_letter(Status.OPEN)),
        ("operations/op-7", OPERATION),
        (f"outbox/{EVENT_ID}", EVENT | NOTHING),
        ("batches/batch-7", BATCH | {"items": []}),
        ("sagas/saga-7", SAGA),
    ],
)
def test_what_cannot_be_read_says_why_on_its_page(
    window: Window, place: str, document: dict[str, Any]
) -> None:
    window.page.route(f"**/api/{place}", lambda route: route.fulfill(status=200, json=document))
    window.open(place)
    expect(window.page.get_by_text("Cannot be read", exact=True)).to_be_visible()
    expect(window.page.locator(".notice").first).to_contain_text("the worker died")
    expect(window.page.get_by_text("The dashboard itself failed")).to_have_count(0)
