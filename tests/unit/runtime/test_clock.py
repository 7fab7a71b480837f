from datetime import UTC, datetime

from durable_retry.runtime import clock


def test_the_present_is_aware_and_utc() -> None:
    assert clock.now().tzinfo is UTC


def test_another_reader_can_stand_in_for_a_while() -> None:
    frozen = datetime(2026, 11, 21, tzinfo=UTC)
    with clock.reading(lambda: frozen):
        assert clock.now() is frozen
    assert clock.now() is not frozen


def test_durations_never_run_backwards() -> None:
    first = clock.monotonic_seconds()
    assert clock.monotonic_seconds() >= first
