from datetime import timedelta

import pytest

from onebox.timespan import parse_timespan


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("00:00:30", timedelta(seconds=30)),
        ("01:02", timedelta(hours=1, minutes=2)),
        ("1.02:03:04", timedelta(days=1, hours=2, minutes=3, seconds=4)),
        ("00:00:00.1000000", timedelta(milliseconds=100)),
        ("-00:00:05", timedelta(seconds=-5)),
    ],
)
def test_a_timespan_is_read(text: str, span: timedelta) -> None:
    assert parse_timespan(text) == span


@pytest.mark.parametrize("text", ["", "30", "24:00:00", "00:60:00", "00:00:60", "1:2:3:4", "00:00:30s"])
def test_what_is_no_timespan_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a TimeSpan"):
        parse_timespan(text)
