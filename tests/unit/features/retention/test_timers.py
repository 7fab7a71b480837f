from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest

from durable_retry.features.retention import timers


async def test_expired_records_are_cleaned_by_a_timer_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    clean_records = AsyncMock()
    monkeypatch.setattr(timers, "clean_records", clean_records)
    context = SimpleNamespace(function_name="record_cleaning", retry_context=None)
    await timers.record_cleaning._function._func(SimpleNamespace(), context, hub="hub")
    clean_records.assert_awaited_once()
