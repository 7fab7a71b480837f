import logging
from types import SimpleNamespace
from typing import Any

import pytest

from durable_retry.hub.platform_retries import is_last_run, note_retry


def context(count: int, most: int) -> Any:
    retry = SimpleNamespace(
        retry_count=count, max_retry_count=most, rpc_exception=SimpleNamespace(message="the hub is away")
    )
    return SimpleNamespace(function_name="operations_kafka", retry_context=retry)


@pytest.mark.parametrize(
    ("count", "most", "is_last"),
    [(0, 0, False), (0, -1, False), (999, -1, False), (2, 3, False), (3, 3, True)],
)
def test_only_a_counted_run_can_be_the_last(count: int, most: int, is_last: bool) -> None:  # noqa: FBT001 - a parameter
    assert is_last_run(context(count, most)) is is_last


def test_a_trigger_without_retries_has_no_last_run() -> None:
    assert not is_last_run(SimpleNamespace(retry_context=None))  # type: ignore[arg-type] # all that is looked at


@pytest.mark.parametrize(
    ("count", "most", "expected"),
    [
        (2, 5, "retry 2 of 5"),
        (5, 5, "retry 5 of 5, the last one"),
        (2, -1, "retry 2 of any number"),
    ],
)
def test_a_retry_is_logged_with_what_failed(
    count: int, most: int, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    note_retry(context(count, most))
    assert caplog.messages == [f"operations_kafka: {expected}, after: the hub is away"]


def test_a_first_run_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        note_retry(context(0, 5))
    assert caplog.messages == []
