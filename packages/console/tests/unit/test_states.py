"""Operations by their states, and why they failed."""

from typing import Any

import pytest

from durable_retry_console.states import last_error


@pytest.mark.parametrize(
    ("shown", "error"),
    [
        ({}, ""),
        ({"attempts": [{"error": None}], "dead_letter": None}, ""),
        ({"attempts": [{"error": "first"}, {"error": "second"}, {"error": None}]}, "second"),
        ({"attempts": [], "dead_letter": {"reason": "PoisonMessage", "detail": "x"}}, "PoisonMessage\nx"),
        ({"attempts": [{"error": "no"}], "dead_letter": {"reason": "PoisonMessage"}}, "no\nPoisonMessage"),
    ],
)
def test_the_last_error_is_that_of_the_latest_failed_attempt_and_of_the_dead_letter(
    shown: dict[str, Any], error: str
) -> None:
    assert last_error(shown) == error
