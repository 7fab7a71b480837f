from datetime import UTC, datetime
from typing import Any

import pytest
from azure.durable_functions.testing import execute_entity
from azure.durable_functions.testing.entity import EntitySignalAction

from durable_retry.app import harden_runtime
from durable_retry.settings.upkeep import RetentionSettings
from entities import idempotency_record
from entities.idempotency_record import IdempotencyRecord

NOW = "2026-11-21T09:00:00Z"
RUN = 1_795_251_600_000
"""That instant in milliseconds."""
CLAIM = {"owner": "op-1", "fingerprint": "f", "now": NOW}
COMPLETE = {**CLAIM, "document": {"status": "succeeded"}, "ttl_seconds": 60.0}


def run(operation: str, request: dict[str, Any], state: Any = None) -> Any:
    harden_runtime()
    return execute_entity(IdempotencyRecord, operation, request, state, entity_key="op-1")


def test_the_first_claim_is_granted() -> None:
    assert run("claim", CLAIM).get_result() == {"answer": "claimed", "run": RUN, "document": None}


def test_a_finished_key_answers_with_its_document() -> None:
    state = run("complete", COMPLETE, run("claim", CLAIM).get_state()).get_state()
    answer = run("claim", CLAIM, state).get_result()
    assert answer == {"answer": "finished", "run": RUN, "document": {"status": "succeeded"}}


@pytest.fixture
def kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        idempotency_record, "retention_settings", lambda: RetentionSettings(history_retention_days=0)
    )


@pytest.mark.usefixtures("kept_for_ever")
def test_a_finished_record_arranges_for_its_own_end_where_histories_are_kept() -> None:
    done = run("complete", COMPLETE, run("claim", CLAIM).get_state())
    (signal,) = done.actions
    assert isinstance(signal, EntitySignalAction)
    assert signal.operation == "expire"
    assert signal.scheduled_time == datetime(2026, 11, 21, 9, 1, tzinfo=UTC)
    assert run("expire", signal.get_input(), done.get_state()).get_state() is None


def test_a_record_that_goes_with_its_history_sends_nothing() -> None:
    done = run("complete", COMPLETE | {"ttl_seconds": 3600.0}, run("claim", CLAIM).get_state())
    assert done.get_state()["expires_at"] == "2026-11-21T10:00:00Z"
    assert not done.actions


def test_an_early_signal_expires_nothing() -> None:
    state = run("complete", COMPLETE, run("claim", CLAIM).get_state()).get_state()
    assert run("expire", {"now": "2026-11-21T09:00:59Z"}, state).get_state() == state


def test_a_stranger_cannot_complete_a_claim() -> None:
    state = run("claim", CLAIM).get_state()
    assert run("complete", COMPLETE | {"owner": "op-2"}, state).get_state() == state


def test_what_a_caller_sent_never_becomes_an_object() -> None:
    trap = {"__class__": "Popen", "__module__": "subprocess", "__data__": "x"}
    state = run("complete", COMPLETE | {"document": {"status": "succeeded", "result": trap}}).get_state()
    assert state["document"]["result"] == trap
