"""When an unfinished orchestration should have had a turn."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from durabletask.internal import orchestrator_service_pb2 as pb

from durable_retry.engine.base.json_forms import to_rfc3339
from durable_retry.engine.base.names import (
    BATCH,
    BULK_ACTION,
    CALL,
    DUE_AT,
    OPERATION,
    OUTBOX,
    SAGA,
)
from durable_retry.engine.config.dependencies_file import Config, parse_config
from durable_retry.services.upkeep import stuck
from durable_retry.services.upkeep.stuck import due_since
from durable_retry.settings.configuration import using

CHANGED: Final = datetime(2026, 11, 28, 12, tzinfo=UTC)
LATER: Final = CHANGED + timedelta(minutes=7)
CONFIG: Final = parse_config("[dependencies.payments]\ntimeouts = { attempt_seconds = 7 }\n", {})


def due(
    shown: dict[str, Any] | None, *, name: str = OPERATION, pending: bool = False, config: Config = CONFIG
) -> datetime | None:
    state = pb.OrchestrationState(
        instanceId="op-test",
        orchestrationStatus=pb.ORCHESTRATION_STATUS_PENDING if pending else pb.ORCHESTRATION_STATUS_RUNNING,
    )
    state.lastUpdatedTimestamp.FromDatetime(CHANGED)
    if shown is not None:
        state.customStatus.value = json.dumps(shown)
    with using(config):
        return due_since(name, state)


@pytest.mark.parametrize("name", [OPERATION, BATCH, SAGA])
def test_a_start_is_due_at_once(name: str) -> None:
    assert due(None, name=name, pending=True) == CHANGED


def test_an_operation_that_shows_nothing_waits_for_an_entity_which_is_due_at_once() -> None:
    assert due(None) == CHANGED


@pytest.mark.parametrize("status", ["waiting_retry", "waiting_circuit", "scheduled", "paused"])
def test_a_wait_is_due_at_its_end(status: str) -> None:
    assert due({"status": status, "next_attempt_at": to_rfc3339(LATER)}) == LATER


def test_a_wait_that_had_a_turn_after_its_end_is_due_since_that() -> None:
    early = to_rfc3339(CHANGED - timedelta(minutes=1))
    assert due({"status": "waiting_retry", "next_attempt_at": early}) == CHANGED


def test_a_wait_in_order_is_due_when_it_asks_again() -> None:
    waits = [{"until": to_rfc3339(CHANGED)}, {"until": to_rfc3339(LATER)}]
    assert due({"status": "waiting_order", "next_attempt_at": None, "waits": waits}) == LATER


@pytest.mark.parametrize(
    "shown", [{"status": "paused", "next_attempt_at": None}, {"status": "waiting_order"}]
)
def test_what_waits_for_a_person_alone_is_never_due(shown: dict[str, Any]) -> None:
    assert due(shown) is None


def test_an_attempt_is_due_when_its_time_is_over() -> None:
    shown = {"status": "running", "dependency": "payments"}
    assert due(shown) == CHANGED + timedelta(seconds=7)


@pytest.mark.parametrize(("limit", "seconds"), [(300.0, 300), (None, 1_800)])
def test_an_attempt_at_a_dependency_that_is_gone_has_the_time_of_a_function(
    monkeypatch: pytest.MonkeyPatch, limit: float | None, seconds: int
) -> None:
    monkeypatch.setattr(stuck, "function_timeout_seconds", lambda: limit)
    assert due({"status": "running", "dependency": "gone"}) == CHANGED + timedelta(seconds=seconds)


@pytest.mark.parametrize("name", [BATCH, SAGA, BULK_ACTION, CALL])
def test_what_waits_is_due_when_it_says(name: str) -> None:
    assert due({"status": "running", DUE_AT: to_rfc3339(LATER)}, name=name) == LATER


@pytest.mark.parametrize("name", [BATCH, SAGA, BULK_ACTION, CALL])
def test_the_answer_of_our_own_side_is_due_at_once(name: str) -> None:
    earlier = to_rfc3339(CHANGED - timedelta(minutes=1))
    assert due({"status": "running"}, name=name) == due({DUE_AT: earlier}, name=name) == CHANGED


@pytest.mark.parametrize(("limit", "seconds"), [(7, 30), (45, 45)])
def test_an_outbox_is_due_when_an_attempt_to_send_is_over_and_not_before_its_next_one(
    limit: int, seconds: int
) -> None:
    config = parse_config(f"[dependencies.payments]\ntimeouts = {{ attempt_seconds = {limit} }}\n", {})
    assert due(None, name=OUTBOX, config=config) == CHANGED + timedelta(seconds=seconds)
    assert due({DUE_AT: to_rfc3339(LATER)}, name=OUTBOX, config=config) == LATER
