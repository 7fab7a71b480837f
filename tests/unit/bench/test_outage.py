"""A short outage, played through the parts that the app itself uses."""

import asyncio
from collections import Counter

import pytest

from bench.outage import Counts, Outage, Scenario
from durable_retry.engine.circuit import CircuitSettings, CircuitState
from durable_retry.engine.circuit.retry_budget import RetryBudgetSettings

SHORT = Scenario(per_second=20, arrive_seconds=60, dead_from_seconds=0, dead_until_seconds=40)
COPIES_SECONDS = 1.5


async def played(circuit: CircuitSettings, budget: RetryBudgetSettings) -> tuple[Outage, Counts]:
    outage = Outage(SHORT, circuit, budget)
    return outage, await outage.run()


@pytest.fixture(scope="module")
def protected() -> tuple[Outage, Counts]:
    return asyncio.run(played(CircuitSettings(break_seconds=10), RetryBudgetSettings()))


def test_everything_succeeds_and_the_circuit_ends_closed(protected: tuple[Outage, Counts]) -> None:
    outage, counts = protected
    assert (counts.succeeded, counts.dead) == (counts.operations, 0)
    assert outage.breaker.state is CircuitState.CLOSED


def test_after_the_trip_one_probe_goes_per_break(protected: tuple[Outage, Counts]) -> None:
    _, counts = protected
    during = [at for at in counts.calls if at < SHORT.dead_until_seconds]
    probes = [at for at in during if at > 1 + COPIES_SECONDS]
    first, second = probes
    assert first >= 10
    assert second >= first + 20


def test_those_who_waited_are_let_go_in_turn(protected: tuple[Outage, Counts]) -> None:
    _, counts = protected
    per_second = Counter(int(at) for at in counts.calls if at >= SHORT.dead_until_seconds)
    assert max(per_second.values()) <= 100 + SHORT.per_second


async def test_without_circuit_and_budget_the_outage_is_amplified() -> None:
    _, bare = await played(CircuitSettings(enabled=False), RetryBudgetSettings(ratio=0))
    during = [at for at in bare.calls if at < SHORT.dead_until_seconds]
    assert len(during) > 2 * SHORT.per_second * 40
    assert bare.events == {}


async def test_the_budget_alone_bounds_the_retries() -> None:
    _, counts = await played(CircuitSettings(enabled=False), RetryBudgetSettings())
    during = [at for at in counts.calls if at < SHORT.dead_until_seconds]
    first_attempts = SHORT.per_second * 40
    # A fifth of the first attempts, one a second, ten seconds of both saved up, and one a process overdrawn.
    assert len(during) - first_attempts <= 0.2 * first_attempts + 40 + 10 * (1 + 0.2 * 20) + 4 * 40
