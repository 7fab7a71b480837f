"""What a type checker sees of declared functions: `mypy .` checks this file, each `ignore` must be needed."""

from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any, assert_type

import azure.durable_functions as df
from durabletask import task
from pydantic import BaseModel

import durable_retry
from durable_retry.features.in_process.operations import Accepted
from durable_retry.handlers import Call, Outcome
from durable_retry_client import AsyncClient, Client, DeadLetter, Operation, Submitted


class Receipt(BaseModel):
    id: str


@durable_retry.operation("typed-charge", dependency="flaky")
def charge(order: str, amount: int = 1) -> Receipt:
    return Receipt(id=f"{order} {amount}")


@durable_retry.operation("typed-ship", dependency="flaky")
async def ship(order: Receipt, call: Call) -> Outcome[int]:
    return Outcome(call.attempt + len(order.id))


def orchestrator(context: task.OrchestrationContext, _given: None) -> Generator[task.Task[Any], Any]:
    receipt = yield from durable_retry.call(context, charge, "o-1", amount=5)
    assert_type(receipt, Receipt)
    assert_type((yield from durable_retry.call(context, charge, "o-1", key="k")), Receipt)
    assert_type((yield from durable_retry.call(context, ship, receipt)), int)
    assert_type(
        (yield from durable_retry.call(context, charge, "o-1", key="k", order_key="c", limit_key="c")),
        Receipt,
    )
    yield from durable_retry.call(context, dependency="payments", order_key="c", order_on_failure="skip")
    yield from durable_retry.call(context, dependency="payments", order_key=7)  # type: ignore[call-overload]
    yield from durable_retry.call(context, charge, 5)  # type: ignore[call-overload]
    yield from durable_retry.call(context, charge, "o-1", amuont=5)  # type: ignore[call-arg]
    yield from durable_retry.call(context, len, "o-1")  # type: ignore[call-overload]
    yield from durable_retry.call(context, dependency="payments", requst={})  # type: ignore[call-overload]


async def in_the_app(client: df.DurableFunctionsClient, receipt: Receipt) -> None:
    operations = durable_retry.Operations.of(client)
    assert_type(await operations.submit(charge, "o-1", amount=5), Accepted)
    assert_type(await operations.submit(ship, receipt, key="k"), Accepted)
    await operations.submit(ship, "o-1")  # type: ignore[call-overload]


async def elsewhere(client: Client, asynchronous: AsyncClient) -> None:
    assert_type(client.submit(dependency="payments", order_key="c"), Submitted)
    assert_type(await asynchronous.submit(handler="charge", wait_seconds=3), Submitted)
    client.submit(dependency="payments", order_key=7)  # type: ignore[arg-type]
    await asynchronous.submit(dependncy="payments")  # type: ignore[call-arg]
    assert_type(client.get("op-1"), Operation)
    assert_type(await asynchronous.get("op-1"), Operation)
    assert_type(await asynchronous.replay("dl-1", note="mended"), str)
    assert_type(client.dead_letters(status="open"), Iterator[DeadLetter])
    assert_type(asynchronous.dead_letters(status="open"), AsyncIterator[DeadLetter])
    client.dead_letters(statuss="open")  # type: ignore[call-arg]
    client.replay("dl-1", nte="mended")  # type: ignore[call-arg]
    await asynchronous.request("GET")  # type: ignore[call-arg]


async def test_a_declared_function_is_called_as_before() -> None:
    assert_type(charge("o-1", 5), Receipt)
    assert charge("o-1", 5) == Receipt(id="o-1 5")
    assert charge.__name__ == "charge"  # type: ignore[attr-defined] # it is the function itself
    charge(5)  # type: ignore[arg-type]
