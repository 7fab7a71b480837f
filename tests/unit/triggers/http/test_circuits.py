from datetime import timedelta
from typing import Any

import azure.functions as func
import pytest

from durable_retry import clock
from durable_retry.engine.circuit.breaker import Breaker
from durable_retry.engine.circuit.snapshot import ClockDifference
from durable_retry.engine.circuit.states import CircuitState
from durable_retry.engine.config.dependencies_file import Config
from durable_retry.settings.configuration import using
from durable_retry.stores.circuit.cache import circuit_of, close_circuits
from durable_retry.stores.circuit.entity import CircuitEntity
from durable_retry.stores.task_hub import TaskHub
from durable_retry.triggers.http.circuits import get_circuit
from tests.support.builders import NOON, PAYMENTS, after

OPEN = Breaker(state=CircuitState.OPEN, clock=NOON, opened_at=NOON, retry_at=after(20))


@pytest.mark.parametrize(("ahead", "state"), [(0, "half_open"), (30, "open")])
async def test_a_circuit_is_shown_by_its_own_clock(
    monkeypatch: pytest.MonkeyPatch, ahead: float, state: str
) -> None:
    """The clock of the machine that answers may be ahead, and the break not over yet."""

    async def read(_: CircuitEntity) -> tuple[Breaker, None]:
        return OPEN, None

    monkeypatch.setattr(CircuitEntity, "readable", read)
    route: Any = get_circuit
    request = func.HttpRequest("GET", "http://localhost/", body=b"")
    with using(Config(dependencies={"payments": PAYMENTS})), clock.reading(lambda: after(25)):
        cache = circuit_of(TaskHub("hub"), PAYMENTS)
        cache.difference = ClockDifference(timedelta(seconds=ahead))
        answer = await route(request, TaskHub("hub"), {"dependency": "payments"})
        close_circuits()
    assert f'"state": "{state}"' in answer.get_body().decode().replace('":"', '": "')
