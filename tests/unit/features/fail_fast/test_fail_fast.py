from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from durable_retry.base.errors import CircuitOpenError
from durable_retry.circuit.cache import circuit_of, close_circuits
from durable_retry.features.fail_fast.members import FailFastKeys
from durable_retry.features.fail_fast.refusing import refuse_while_open
from durable_retry.features.in_process import start as in_process_start
from durable_retry.features.in_process.documents import OperationFailed, result_in
from durable_retry.features.in_process.start import PendingCall, begin_call
from durable_retry.features.replay.rules import parts_of_replay
from durable_retry.operations.actions import submit
from durable_retry.rules.circuit.snapshot import Snapshot
from durable_retry.rules.circuit.states import CircuitSettings, CircuitState
from durable_retry.rules.config.dependencies_file import Config
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.operations.keys import EXPLICIT_SCOPE, ScopedKey
from durable_retry.rules.operations.operation import OperationInput, operation_from
from durable_retry.rules.operations.request import parse_operation
from durable_retry.runtime import clock
from durable_retry.settings.configuration import using
from tests.support.builders import NOON, PAYMENTS, after, an_operation

REFUSING = replace(PAYMENTS, of_features={"fail_fast": FailFastKeys(when_open="refuse")})
PARTS: dict[str, dict[str, Any]] = {"fail_fast": {}}


def submitted(dependency: Dependency, **members: Any) -> OperationInput:
    body = {"dependency": "payments", "request": {"path": "/charges"}} | members
    name = ScopedKey(EXPLICIT_SCOPE, "key-1")
    return operation_from(parse_operation(body), dependency, name, source="http", now=NOON)


@pytest.mark.parametrize(
    ("dependency", "members", "parts"),
    [
        (PAYMENTS, {}, None),
        (PAYMENTS, {"when_open": "refuse"}, PARTS),
        (REFUSING, {}, PARTS),
        (REFUSING, {"when_open": "wait"}, None),
        (REFUSING, {"when_open": None}, PARTS),
        (replace(PAYMENTS, of_features={"fail_fast": FailFastKeys(when_open="wait")}), {}, None),
    ],
)
def test_an_operation_says_itself_whether_it_waits_or_its_dependency_does(
    dependency: Dependency, members: dict[str, Any], parts: Any
) -> None:
    assert submitted(dependency, **members).parts == parts


def test_a_replay_waits_for_it_was_asked_for_by_a_person() -> None:
    assert parts_of_replay(PARTS) is None


def a_hub(instance: Any = None) -> Any:
    return Mock(read_instance=AsyncMock(return_value=instance))


def opened(hub: Any, state: CircuitState = CircuitState.OPEN, **more: Any) -> None:
    """Let this worker know a circuit, which nobody can read anew."""
    shown: dict[str, Any] = {"retry_at": after(7), "reason": "5 of 5 calls failed", **more}
    circuit = circuit_of(hub, PAYMENTS)
    circuit.now = lambda: NOON
    circuit.snapshot = Snapshot(NOON, state, 1, **shown)


async def asked(hub: Any, configured: Dependency = PAYMENTS, **changes: Any) -> None:
    with using(Config({"payments": configured})), clock.reading(lambda: NOON):
        try:
            await refuse_while_open(hub, an_operation(parts=PARTS, **changes))
        finally:
            close_circuits()


@pytest.mark.parametrize("source", ["http", "app", "call"])
async def test_one_that_comes_while_the_circuit_is_open_is_refused_until_it_ends(source: str) -> None:
    hub = a_hub()
    opened(hub, failure="answers 503")
    with pytest.raises(CircuitOpenError) as refused:
        await asked(hub, source=source)
    assert refused.value.retry_after_seconds == 7
    assert (
        str(refused.value) == "payments is not called: the circuit is open: 5 of 5 calls failed, answers 503"
    )


@pytest.mark.parametrize(
    "changes", [{"source": "queue"}, {"source": "batch"}, {"start_at": after(60)}, {"dependency": "gone"}]
)
async def test_what_nobody_waits_for_or_what_begins_later_is_taken(changes: dict[str, Any]) -> None:
    hub = a_hub()
    opened(hub)
    await asked(hub, **changes)
    hub.read_instance.assert_not_awaited()


async def test_a_circuit_that_is_closed_costs_no_request() -> None:
    hub = a_hub()
    opened(hub, CircuitState.CLOSED, retry_at=None)
    await asked(hub)
    hub.read_instance.assert_not_awaited()


async def test_a_dependency_without_a_circuit_refuses_nothing() -> None:
    await asked(a_hub(), replace(PAYMENTS, circuit=CircuitSettings(enabled=False)))


async def test_a_pause_that_the_dependency_asked_for_is_no_open_circuit() -> None:
    hub = a_hub()
    opened(hub, CircuitState.CLOSED, retry_at=None, throttled_until=NOON + timedelta(seconds=30))
    await asked(hub)


async def test_a_key_that_was_used_before_answers_all_the_same() -> None:
    hub = a_hub(instance=object())
    opened(hub)
    await asked(hub)


async def test_a_submission_asks_the_feature_before_it_starts() -> None:
    hub = a_hub()
    opened(hub)
    with using(Config({"payments": PAYMENTS})), clock.reading(lambda: NOON), pytest.raises(CircuitOpenError):
        await submit(hub, an_operation(parts=PARTS, key_is_generated=True))
    hub.start_operation.assert_not_called()
    close_circuits()


async def test_a_call_ends_with_the_open_circuit_as_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: Any) -> Any:
        raise CircuitOpenError("payments is not called: the circuit is open", 7)

    monkeypatch.setattr(in_process_start, "submit", refuse)
    body = {"dependency": "payments", "request": {"path": "/charges"}}
    with using(Config({"payments": REFUSING})):
        started = await begin_call(a_hub(), body, PendingCall("call-1", NOON, "ship/1"), NOON)
    with pytest.raises(OperationFailed) as failed:
        result_in(started)
    assert (failed.value.status, failed.value.category) == ("refused", "circuit_open")
    assert (failed.value.reason, failed.value.dead_letter_id) == ("CircuitOpen", None)
    assert failed.value.detail == "payments is not called: the circuit is open"
