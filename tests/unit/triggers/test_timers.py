from datetime import UTC, datetime
from typing import Any

import pytest

from durable_retry.triggers.timers import last_fire

NINE = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("status", "last"),
    [
        ({"Last": "2026-11-21T09:00:00+00:00"}, NINE),
        ({"Last": "2026-11-21T10:00:00.0000000+01:00"}, NINE),
        ({"Last": "2026-11-21T09:00:00"}, NINE),
        ({"Last": "0001-01-01T00:00:00"}, None),
        ({"Last": "0001-01-01T00:00:00+00:00"}, None),
        ({"Last": None}, None),
        ({"Last": "nonsense"}, None),
        ({"Last": 5}, None),
        ({}, None),
    ],
)
def test_the_hosts_record_says_when_a_timer_fired_last(status: dict[str, Any], last: datetime | None) -> None:
    assert last_fire(status) == last
