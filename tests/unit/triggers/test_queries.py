from datetime import UTC, datetime

import pytest

from engine.problem import InvalidInputError
from triggers.queries import Query


def test_nothing_asked_gives_the_defaults() -> None:
    query = Query({})
    assert query.limit() == 50
    assert query.text("cursor") is None
    assert query.instant("created_after") is None
    query.check()


def test_what_is_asked_is_read() -> None:
    query = Query({"limit": "200", "created_after": "2026-11-21T09:00:00Z", "status": "a", "code": "key"})
    assert query.limit() == 200
    assert query.instant("created_after") == datetime(2026, 11, 21, 9, tzinfo=UTC)
    assert query.one_of("status", frozenset({"a", "b"})) == "a"
    query.check()


@pytest.mark.parametrize("limit", ["0", "201", "-1", "x", "1.5"])
def test_a_limit_out_of_range_is_told(limit: str) -> None:
    query = Query({"limit": limit})
    query.limit()
    with pytest.raises(InvalidInputError, match="from 1 to 200"):
        query.check()


def test_every_mistake_is_told_at_once() -> None:
    query = Query({"limit": "0", "created_after": "yesterday", "status": "c", "colour": "red"})
    query.limit()
    query.instant("created_after")
    query.one_of("status", frozenset({"a"}))
    with pytest.raises(InvalidInputError) as caught:
        query.check()
    assert {problem.pointer for problem in caught.value.problems} == {
        "/limit",
        "/created_after",
        "/status",
        "/colour",
    }
