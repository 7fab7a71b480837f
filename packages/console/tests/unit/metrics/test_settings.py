"""The app setting of metrics over time."""

import pytest

from durable_retry_console.metrics.settings import metrics_settings


@pytest.mark.parametrize(("written", "days"), [(None, 7.0), ("0.5", 0.5), ("0", 0.0)])
def test_metrics_are_kept_for_a_week_unless_set(
    monkeypatch: pytest.MonkeyPatch, written: str | None, days: float
) -> None:
    metrics_settings.cache_clear()
    monkeypatch.delenv("METRICS_RETENTION_DAYS", raising=False)
    if written is not None:
        monkeypatch.setenv("METRICS_RETENTION_DAYS", written)
    assert metrics_settings().metrics_retention_days == days
    metrics_settings.cache_clear()
