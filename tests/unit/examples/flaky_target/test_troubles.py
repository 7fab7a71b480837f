from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import pytest

from examples.flaky_target.troubles import BadInstructionError, retry_after_headers


@pytest.mark.parametrize(
    ("form", "headers"),
    [
        ("seconds", {"retry-after": "2"}),
        ("ms", {"retry-after-ms": "2000"}),
        ("ratelimit", {"ratelimit": '"default";r=0;t=2', "ratelimit-policy": '"default";q=10;w=60'}),
    ],
)
def test_each_form_of_retry_after_has_its_headers(form: str, headers: dict[str, str]) -> None:
    assert retry_after_headers(2, form) == headers


def test_the_date_form_is_an_http_date_so_far_from_now() -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    retry_at = parsedate_to_datetime(retry_after_headers(60, "date")["retry-after"])
    assert before + timedelta(seconds=60) <= retry_at <= datetime.now(UTC) + timedelta(seconds=60)


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(BadInstructionError, match="form must be"):
        retry_after_headers(1, "weeks")
