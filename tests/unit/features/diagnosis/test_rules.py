from typing import Any

import pytest

from durable_retry.features.diagnosis.rules import PartState, reached_parts

AT = "2026-11-21T12:00:00Z"


@pytest.mark.parametrize(
    ("status", "failure", "expected"),
    [
        (None, None, "waiting waiting waiting waiting waiting"),
        ({"reached": {"start": AT, "entity": AT}}, None, "ok ok waiting waiting waiting"),
        (
            {"reached": {"start": AT}, "failed": {"part": "entity", "detail": "away"}},
            None,
            "ok failed waiting waiting waiting",
        ),
        ({"reached": {"start": AT, "entity": AT}}, "killed", "ok ok failed waiting waiting"),
        ({"reached": 7}, None, "failed waiting waiting waiting waiting"),
    ],
)
def test_a_part_is_reached_failed_or_still_to_come(status: Any, failure: str | None, expected: str) -> None:
    assert " ".join(part.state for part in reached_parts(status, failure)) == expected


def test_the_part_behind_the_last_one_reached_says_why_the_orchestration_failed() -> None:
    parts = {part.name: part for part in reached_parts({"reached": {"start": AT}}, "killed")}
    assert (parts["entity"].state, parts["entity"].detail) == (PartState.FAILED, "killed")
    assert parts["start"].at is not None
