import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from azure.core.exceptions import AzureError

from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.features.order.lanes import find_unseen
from durable_retry.features.order.rules.members import order_of
from durable_retry.features.order.store import TABLE, lane_id, remove_old_tails, take_number
from durable_retry.hub.task_hub import close_clients
from durable_retry.operations.actions import Replayed, Started, submit
from durable_retry.rules.operations.keys import operation_id_for
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.runtime import clock
from durable_retry.storage import tables
from tests.support.builders import an_operation, failing
from tests.support.feature_parts import in_order
from tests.support.hub import TaskHubStage, task_hub_stage
from tests.support.narrowing import existing
from tests.support.polling import until

pytestmark = pytest.mark.usefixtures("storage")


@pytest.fixture
async def hub() -> AsyncIterator[TaskHubStage]:
    with task_hub_stage() as stage:
        stage.answer = failing(99)
        yield stage
        await close_clients()


@pytest.fixture
def order_key() -> str:
    return uuid4().hex


def ordered(order_key: str, name: str, **more: Any) -> OperationInput:
    key = f"{order_key}-{name}"
    given = {"parts": in_order(order_key), "created_at": clock.now()}
    return an_operation(
        operation_id=operation_id_for("explicit", key), key=key, deadline_in=None, **given | more
    )


async def started(hub: TaskHubStage, operation: OperationInput) -> OperationInput:
    assert isinstance(await submit(hub.binding, operation), Started)
    instance = existing(await hub.binding.read_instance(operation.operation_id))
    return OperationInput.from_json(instance.input["operation"])


def place_of(operation: OperationInput) -> tuple[int, str | None]:
    """Return its number, 0 without one, and the operation before it."""
    order = order_of(operation)
    return (0, None) if order is None else (order.number or 0, order.after)


async def test_each_operation_has_a_higher_number_and_names_the_one_before_it(
    hub: TaskHubStage, order_key: str
) -> None:
    first = await started(hub, ordered(order_key, "a"))
    second = await started(hub, ordered(order_key, "b", created_at=clock.now() - timedelta(hours=1)))
    (number, before), (higher, after) = place_of(first), place_of(second)
    assert higher > number > 0
    assert (before, after) == (None, first.operation_id)


async def test_a_submission_that_is_made_again_comes_before_nobody(hub: TaskHubStage, order_key: str) -> None:
    first = await started(hub, ordered(order_key, "a"))
    assert isinstance(await submit(hub.binding, ordered(order_key, "a")), Replayed)
    second = await started(hub, ordered(order_key, "b"))
    assert place_of(second)[1] == first.operation_id
    assert isinstance(await submit(hub.binding, ordered(order_key, "a")), Replayed)
    assert place_of(await started(hub, ordered(order_key, "c")))[1] == second.operation_id


async def test_an_operation_whose_number_came_to_no_start_comes_behind_those_accepted_since(
    hub: TaskHubStage, order_key: str
) -> None:
    operation = ordered(order_key, "a")
    await take_number(order_key, operation.operation_id)
    first = await started(hub, ordered(order_key, "b"))
    second = await started(hub, operation)
    third = await started(hub, ordered(order_key, "c"))
    assert [place_of(each)[1] for each in (second, third)] == [first.operation_id, second.operation_id]
    assert place_of(third) > place_of(second) > place_of(first)


async def test_without_an_order_and_before_a_later_start_there_is_no_number(
    hub: TaskHubStage, order_key: str
) -> None:
    for operation in (an_operation(), ordered(order_key, "a", start_at=clock.now())):
        assert place_of(await started(hub, operation)) == (0, None)


async def test_all_that_come_at_once_have_numbers_of_their_own(order_key: str) -> None:
    tails = await asyncio.gather(*(take_number(order_key, f"{each}") for each in range(40)))
    assert len({tail.number for tail in tails}) == 40


async def test_without_a_number_nothing_is_started(
    hub: TaskHubStage, order_key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise AzureError("away")

    monkeypatch.setattr(tables, "read_version", away)
    operation = ordered(order_key, "a")
    with pytest.raises(TaskHubUnavailableError, match="no number"):
        await submit(hub.binding, operation)
    assert await hub.binding.read_instance(operation.operation_id) is None


async def test_a_look_finds_whoever_the_lane_has_to_see(hub: TaskHubStage, order_key: str) -> None:
    operation = await started(hub, ordered(order_key, "a"))
    message = existing(await find_unseen(hub.binding, operation.operation_id))
    assert (message.operation_id, message.number) == (operation.operation_id, place_of(operation)[0])
    assert await find_unseen(hub.binding, operation_id_for("explicit", "nobody")) is None
    hub.answer = failing(0)
    over = await started(hub, ordered(f"{order_key}-alone", "b"))

    async def is_seen() -> bool:
        return await find_unseen(hub.binding, over.operation_id) is None

    await until(is_seen)


async def test_the_tail_of_a_lane_that_nobody_came_to_for_a_day_is_removed(order_key: str) -> None:
    await take_number(order_key, "a")
    key = lane_id(order_key).key
    parts = [clock.now() + timedelta(minutes=5 * part) for part in range(256)]
    for at in parts:
        await remove_old_tails(at - timedelta(hours=22))
    assert await tables.read(TABLE, key[:2], key) is not None
    for at in parts:
        await remove_old_tails(at + timedelta(days=1))
    assert await tables.read(TABLE, key[:2], key) is None
