from datetime import UTC, datetime

import pytest

from onebox.worker.outputs import ExpressionError, expand, values_of
from onebox.worker.runner import json_datum, text_datum

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_names_are_replaced_by_what_the_trigger_offers() -> None:
    values = values_of({"Id": text_datum("m-1"), "order": json_datum("7"), "name": json_datum('"Ada"')})
    assert expand("out/{id}-{Order}/{name}.txt", values, NOON) == "out/m-1-7/Ada.txt"


def test_time_and_chance_are_always_offered() -> None:
    assert expand("{DateTime}", {}, NOON) == "2026-11-21T12-00-00Z"
    assert len(expand("{rand-guid}", {}, NOON)) == 36


def test_what_is_not_offered_is_refused() -> None:
    with pytest.raises(ExpressionError, match=r"the trigger offers no \{nothing\}"):
        expand("{nothing}", {}, NOON)
