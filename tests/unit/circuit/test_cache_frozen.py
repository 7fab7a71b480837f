import json
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from durable_retry.attempt.admission import attempt_if_admitted
from durable_retry.circuit.cache import circuit_of, close_circuits, refusal_of
from durable_retry.rules.circuit.freeze import Freeze
from durable_retry.rules.circuit.retry_budget import RetryBudgetSettings
from durable_retry.rules.circuit.snapshot import Permitted, Refused, Snapshot, frozen
from durable_retry.rules.circuit.states import CircuitSettings, CircuitState
from durable_retry.rules.retry.admission import AdmissionState
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.rules.retry.loop import Blocked
from durable_retry.runtime import clock
from tests.support.builders import NOON, PAYMENTS, after, an_operation, an_outcome
from tests.support.narrowing import of_type
from tests.support.shared_circuit import Copies

FREEZE = Freeze(NOON, NOON, "ada", "wrong amounts")
FIRST = AdmissionState()


def freeze(stage: Copies, said: Freeze = FREEZE) -> None:
    """Let the circuit hear of it, and the worker's copy grow old."""
    stage.shared.breaker = stage.shared.breaker.with_freeze(said, stage.moment.at)
    stage.moment.pass_(1.1)


async def ask(stage: Copies, admission: AdmissionState = FIRST) -> Permitted | Blocked:
    return await stage.copy.enter("op-1", 1, admission)


@pytest.mark.parametrize("is_on", [True, False])
async def test_nothing_starts_and_a_thaw_lets_it_go(*, is_on: bool) -> None:
    stage = Copies(CircuitSettings(enabled=is_on))
    assert isinstance(await ask(stage), Permitted)
    freeze(stage)
    assert of_type(Refused, await ask(stage)).frozen
    freeze(stage, FREEZE.then(after(2), share=1.0))
    assert isinstance(await ask(stage), Permitted)


async def test_a_dependency_without_anything_to_ask_is_read_once_a_second_and_held() -> None:
    bare = replace(
        PAYMENTS, circuit=CircuitSettings(enabled=False), retry_budget=RetryBudgetSettings(ratio=0)
    )
    read, made = AsyncMock(return_value=None), an_outcome(None)
    hub, stage, now = Mock(read_entity=read), Copies(CircuitSettings(enabled=False)), NOON

    async def ask(**admission: Any) -> AttemptOutcome | Blocked:
        return await attempt_if_admitted(
            hub,
            bare,
            an_operation(),
            number=1,
            admission=AdmissionState(**admission),
            attempt=AsyncMock(return_value=made),
        )

    with clock.reading(lambda: now):
        assert [await ask() for _ in range(3)] == [made] * 3
        assert read.await_count == 1
        freeze(stage)
        read.return_value = json.dumps(stage.shared.breaker.to_json())
        now = after(1.1)
        assert of_type(Refused, await ask()).frozen
        assert await ask(is_canary=True) == made
    assert read.await_count == 2
    # No report goes to a circuit that is switched off.
    assert [each[0] for each in hub.method_calls] == ["read_entity"] * 2
    close_circuits()


async def test_a_probe_that_was_granted_before_is_given_back() -> None:
    stage = Copies()
    freeze(stage)
    lease = Permitted(1, lease_id="op-1:1", lease_expires_at=after(60))
    assert of_type(Refused, await ask(stage, AdmissionState(permit=lease))).frozen
    await stage.flush_after(5)
    probes = [probe.lease_id for sent in stage.shared.sent_reports for probe in sent.report.probes]
    assert probes == ["op-1:1"]


@pytest.mark.parametrize(
    ("state", "reason"), [(CircuitState.CLOSED, None), (CircuitState.OPEN, "the circuit is open: it failed")]
)
async def test_a_call_beside_attempts_is_let_through_as_before(
    state: CircuitState, reason: str | None
) -> None:
    hub = Mock()
    circuit = circuit_of(hub, PAYMENTS)
    circuit.now = lambda: NOON
    circuit.snapshot = frozen(Snapshot(NOON, state, 1, retry_at=after(7), reason="it failed"), FREEZE)
    refused = await refusal_of(hub, PAYMENTS, "op-1", None)
    assert (None if refused is None else refused.reason) == reason
    circuit.snapshot = replace(circuit.snapshot, frozen=None)
    assert await refusal_of(hub, PAYMENTS, "op-1", None) is not None
    close_circuits()
