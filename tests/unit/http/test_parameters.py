from datetime import UTC, datetime
from enum import StrEnum

import pytest

from durable_retry.base.validation import InvalidInputError
from durable_retry.http.parameters import (
    CREATED_AFTER,
    CURSOR,
    KEY,
    LIMIT,
    Parameter,
    cursor,
    one_of,
    row_cursor,
)
from durable_retry.http.routes import read_query
from tests.support.mistakes import pointers_of


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


COLOUR = one_of("colour", Colour, "Its colour.")
PARAMETERS = (COLOUR, CREATED_AFTER, LIMIT, CURSOR)


def pointers(sent: dict[str, str]) -> set[str]:
    return set(pointers_of(read_query, PARAMETERS, sent))


def test_an_empty_query_gives_the_defaults() -> None:
    query = read_query(PARAMETERS, {"cursor": ""})
    assert (query[LIMIT], query[CURSOR], query[CREATED_AFTER], query[COLOUR]) == (50, None, None, None)


def test_every_kind_of_parameter_is_read() -> None:
    sent = {"limit": "200", "created_after": "2026-11-21T09:00:00Z", "colour": "red", "cursor": "c"}
    query = read_query(PARAMETERS, sent)
    assert (query[LIMIT], query[CURSOR], query[COLOUR]) == (200, "c", Colour.RED)
    assert query[CREATED_AFTER] == datetime(2026, 11, 21, 9, tzinfo=UTC)


def test_the_keys_of_the_host_are_no_unknown_parameters() -> None:
    read_query((), {"code": "key", "clientId": "default"})


@pytest.mark.parametrize("limit", ["0", "201", "-1", "x", "1.5", "٣", "1_0", "+1", " 1", "9" * 5_000])
def test_a_limit_out_of_range_is_refused(limit: str) -> None:
    with pytest.raises(InvalidInputError, match="from 1 to 200"):
        read_query((LIMIT,), {"limit": limit})


def test_every_mistake_is_reported_at_once() -> None:
    sent = {"limit": "0", "created_after": "yesterday", "colour": "green", "size": "1"}
    assert pointers(sent) == {"/limit", "/created_after", "/colour", "/size"}


def test_an_unknown_parameter_is_told_the_known_ones() -> None:
    with pytest.raises(InvalidInputError, match="this route takes colour, created_after, cursor, limit"):
        read_query((*PARAMETERS, KEY), {"size": "1"})
    with pytest.raises(InvalidInputError, match="this route takes none"):
        read_query((), {"size": "1"})


def test_a_header_is_no_query_parameter() -> None:
    with pytest.raises(InvalidInputError, match="not a known parameter"):
        read_query((KEY,), {KEY.name: "k"})


@pytest.mark.parametrize(("parameter", "text"), [(cursor(int), "abc"), (row_cursor("[0-9]{3}-a"), "123-ab")])
def test_a_cursor_of_another_list_is_refused(parameter: Parameter[object], text: str) -> None:
    with pytest.raises(InvalidInputError, match="not from an answer of this list"):
        read_query((parameter,), {"cursor": text})
