import json
from typing import Any

import pytest

from engine.vocabulary import DeadLetterReason
from stores import tables
from stores.dead_letters import TABLE, keep_message, keep_operation
from tests.operation_stage import START, an_operation

pytestmark = pytest.mark.usefixtures("storage")


async def kept(dead_letter_id: str) -> dict[str, Any]:
    row = await tables.read(TABLE, dead_letter_id, "record")
    assert row is not None
    document: dict[str, Any] = json.loads(tables.unpacked("document", row))
    return document


def an_entry(operation_id: str) -> dict[str, Any]:
    return {
        "operation": an_operation(operation_id=operation_id).to_json(),
        "category": "malformed",
        "reason": "RejectedByDependency",
        "detail": "status 422",
        "attempts": [{"number": 1, "started_at": "2026-11-21T09:00:00Z", "status_code": 422, "error": "no"}],
    }


async def test_an_operation_is_kept_with_all_that_a_person_needs() -> None:
    document = await kept(await keep_operation(an_entry("op-1"), START))
    assert document["request"]["path"] == "/charges"
    assert document["first_failed_at"] == "2026-11-21T09:00:00Z"
    assert document["status"] == "open"
    assert document["group"].startswith("g-")


async def test_keeping_it_again_leaves_one() -> None:
    assert await keep_operation(an_entry("op-2"), START) == await keep_operation(an_entry("op-2"), START)


async def test_a_message_is_kept_with_its_raw_text() -> None:
    text = "not json \udc80"
    dead_letter_id = await keep_message(
        text.encode("utf-8", "replace").decode(),
        source="queue",
        message_id="m-1",
        reason=DeadLetterReason.MALFORMED_JSON,
        detail="no",
        now=START,
    )
    assert (await kept(dead_letter_id))["message"] == "not json ?"
