from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

import durable_retry
from activities.fallback import leave_dependency
from durable_retry.circuit.cache import circuit_of, close_circuits
from durable_retry.features.fallback.rules import Departure, LeaveCall, Route, Terms
from durable_retry.features.fallback.stays import Stay
from durable_retry.rules.circuit.snapshot import Snapshot
from durable_retry.rules.circuit.states import CircuitState
from durable_retry.rules.config.dependencies_file import Config, parse_config
from durable_retry.rules.operations.operation import AttemptCall, OperationInput
from durable_retry.runtime import clock
from durable_retry.settings.configuration import find_dependency, using
from durable_retry.storage import clients as storage_clients
from tests.support.builders import NOON, after, an_operation
from tests.support.narrowing import existing
from tests.support.tables import TablesInMemory

pytestmark = pytest.mark.usefixtures("no_handlers")

CONFIG = """
[defaults]
circuit = { break_seconds = 30 }
[dependencies.payments]
base_url = "http://payments.test"
fallback = "spare"
[dependencies.spare]
base_url = "http://spare.test"
fallback = "last"
retry = { strategy = "fixed", max_attempts = 3 }
[dependencies.last]
base_url = "http://last.test"
fallback = "payments"
circuit = { enabled = false }
[dependencies.code]
"""
HUB: Any = Mock()
HOME = Route(to="spare")
AWAY = Route(
    to="spare",
    stay=1,
    of="payments",
    home=Terms(policy=an_operation().policy, timeouts=an_operation().timeouts, parts={}),
)


@pytest.fixture(autouse=True)
async def config(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Config]:
    account = TablesInMemory()
    monkeypatch.setattr(storage_clients, "table_service", lambda: account)
    config = parse_config(CONFIG, {})
    with using(config), clock.reading(lambda: NOON):
        known("payments", CircuitState.OPEN, retry_at=after(20), reason="5 of 5 calls failed")
        known("spare")
        yield config
        close_circuits()


def known(name: str, state: CircuitState = CircuitState.CLOSED, **more: Any) -> None:
    """Let this worker know a circuit, which nobody can read anew."""
    circuit = circuit_of(HUB, existing(find_dependency(name)))
    circuit.now = lambda: NOON
    circuit.snapshot = Snapshot(NOON, state, 1, **more)


def leaving(route: Route = HOME, **changes: Any) -> OperationInput:
    values = {"dependency": "payments" if route.of is None else "spare"} | changes
    return an_operation(parts={"fallback": route.to_json()}, **values)


async def departure(operation: OperationInput, *, is_late: bool = False) -> Departure:
    call = AttemptCall(operation=operation.to_json(), attempt=1)
    return Departure.from_json(
        await leave_dependency(LeaveCall(call=call.to_json(), is_late=is_late).to_json(), HUB)
    )


async def test_while_its_circuit_is_open_it_goes_to_the_fallback() -> None:
    answer = await departure(leaving())
    assert (answer.to, answer.why) == ("spare", None)
    assert answer.terms is not None
    assert (answer.terms.policy.max_attempts, answer.terms.downstream_key) == (3, "key-1~at~spare")
    assert await Stay.of(leaving()).was_left()


async def test_where_that_is_open_too_it_goes_to_the_fallback_of_that() -> None:
    known("spare", CircuitState.OPEN, retry_at=after(9), reason="it failed")
    assert (await departure(leaving())).to == "last"


async def test_where_all_are_open_it_stays_until_the_first_of_them_may_be_asked(config: Config) -> None:
    known("spare", CircuitState.OPEN, retry_at=after(9), reason="it failed")
    alone = replace(config.dependencies["spare"], of_features={})
    with using(Config({**config.dependencies, "spare": alone})):
        answer = await departure(leaving())
    assert (answer.to, answer.why) == (None, "spare is not asked either: the circuit is open: it failed")
    assert answer.until is not None
    assert after(9) <= answer.until < after(10)
    assert not await Stay.of(leaving()).was_left()


@pytest.mark.parametrize(
    ("state", "more", "to"),
    [
        (CircuitState.CLOSED, {}, None),
        (CircuitState.CLOSED, {"throttled_until": after(30)}, None),
        (CircuitState.HALF_OPEN, {"probes_free": 1}, "spare"),
        (CircuitState.HALF_OPEN, {"probes_free": 0}, "spare"),
        (CircuitState.FORCED_OPEN, {"retry_at": after(30)}, "spare"),
        (CircuitState.DISABLED, {}, None),
    ],
)
async def test_it_goes_while_the_circuit_lets_no_attempts_through(
    state: CircuitState, more: dict[str, Any], to: str | None
) -> None:
    known("payments", state, **more)
    assert (await departure(leaving())).to == to


async def test_one_whose_wait_is_too_long_goes_whatever_the_circuit_says() -> None:
    known("payments")
    assert (await departure(leaving(), is_late=True)).to == "spare"


@pytest.mark.parametrize(
    ("more", "to"),
    [
        ({}, None),
        ({"throttled_until": after(30)}, "payments"),
        ({"state": CircuitState.OPEN, "retry_at": after(9)}, "payments"),
    ],
)
async def test_it_comes_back_where_the_fallback_lets_no_attempts_through(
    more: dict[str, Any], to: str | None
) -> None:
    known("spare", **more)
    assert await departure(leaving(AWAY)) == Departure(to=to)


async def test_where_an_execution_may_have_sent_it_stays() -> None:
    await Stay.of(leaving()).begin("a")
    answer = await departure(leaving())
    assert answer == Departure(why="an earlier execution may have reached payments, so it stays there")


async def test_a_second_execution_leaves_though_the_circuit_has_closed() -> None:
    first = await departure(leaving())
    known("payments")
    assert await departure(leaving()) == first


async def test_one_that_has_left_and_has_no_way_any_more_begins_anew_where_it_was(config: Config) -> None:
    await departure(leaving())
    without = {name: each for name, each in config.dependencies.items() if name != "spare"}
    with using(Config(without)):
        assert await departure(leaving()) == Departure(to="payments")


async def test_a_fallback_that_was_taken_out_is_not_asked(config: Config) -> None:
    without = {name: each for name, each in config.dependencies.items() if name != "spare"}
    with using(Config(without)):
        assert (await departure(leaving())).why == "spare is not configured here any more"


async def test_a_dependency_that_was_taken_out_is_not_left() -> None:
    assert await departure(leaving(dependency="gone")) == Departure()


async def test_a_request_needs_an_address() -> None:
    answer = await departure(leaving(Route(to="code")))
    assert answer.why == "code has no base_url"
    assert (await departure(leaving(Route(to="code"), request=None, handler="charge"))).to == "code"


@pytest.mark.parametrize("request_", [{"headers": {"X-Api-Key": "k"}}, {"query": {"api_key": "k"}}])
async def test_a_credential_of_the_caller_goes_to_nobody_else(request_: dict[str, Any]) -> None:
    request = {"method": "POST", "path": "/", "query": {}, "headers": {}} | request_
    answer = await departure(leaving(request=request))
    why = [f"{name} is not asked: the request has a credential of its caller" for name in ("spare", "last")]
    assert (answer.to, answer.why) == (None, "; ".join(why))


async def test_a_handler_takes_its_own_policy_along() -> None:
    @durable_retry.operation(dependency="payments", retry={"max_attempts": 9})
    def charge(order: str) -> str:
        return order

    answer = await departure(leaving(request=None, handler="charge"))
    assert answer.terms is not None
    assert (answer.terms.policy.max_attempts, answer.terms.policy.strategy) == (9, "fixed")
