from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.durable_functions.testing import execute_entity
from azure.durable_functions.testing.entity import EntitySignalAction

from durable_retry.app import harden_runtime
from durable_retry.settings.retention import Retention
from entities import idempotency_record
from entities.idempotency_record import IdempotencyRecord

NOW = "2026-11-21T09:00:00Z"
RUN = 1_795_251_600_000
"""That instant in milliseconds."""
COMPLETE = {
    "run": RUN,
    "fingerprint": "f",
    "document": {"status": "succeeded"},
    "now": NOW,
    "ttl_seconds": 60.0,
}


def run(operation: str, request: dict[str, Any], state: Any = None) -> Any:
    harden_runtime()
    return execute_entity(IdempotencyRecord, operation, request, state, entity_key="op-1")


def test_an_end_is_kept_for_its_time() -> None:
    assert run("complete", COMPLETE).get_state() == {
        "run": RUN,
        "fingerprint": "f",
        "expires_at": "2026-11-21T09:01:00Z",
        "document": {"status": "succeeded"},
    }


def test_a_record_arranges_for_its_own_end_where_histories_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency_record, "retention", Retention)
    done = run("complete", COMPLETE)
    (signal,) = done.actions
    assert isinstance(signal, EntitySignalAction)
    assert signal.operation == "expire"
    assert signal.scheduled_time == datetime(2026, 11, 21, 9, 1, tzinfo=UTC)
    assert run("expire", signal.get_input(), done.get_state()).get_state() is None


def test_a_record_that_goes_with_its_history_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency_record, "retention", lambda: Retention(history_for=timedelta(days=7)))
    done = run("complete", COMPLETE | {"ttl_seconds": 3600.0})
    assert done.get_state()["expires_at"] == "2026-11-21T10:00:00Z"
    assert not done.actions


def test_an_early_signal_expires_nothing() -> None:
    state = run("complete", COMPLETE).get_state()
    assert run("expire", {"now": "2026-11-21T09:00:59Z"}, state).get_state() == state


def test_an_earlier_run_completes_nothing() -> None:
    state = run("complete", COMPLETE).get_state()
    late = COMPLETE | {"run": RUN - 1, "document": {"status": "dead_lettered"}}
    assert run("complete", late, state).get_state() == state


def test_what_a_caller_sent_never_becomes_an_object() -> None:
    trap = {"__class__": "Popen", "__module__": "subprocess", "__data__": "x"}
    state = run("complete", COMPLETE | {"document": {"status": "succeeded", "result": trap}}).get_state()
    assert state["document"]["result"] == trap
