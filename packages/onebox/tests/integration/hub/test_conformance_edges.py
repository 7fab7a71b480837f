"""Cases at the edges: ids that are not there, instances that have ended, pages and filters."""

from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from durabletask.client import AsyncTaskHubGrpcClient, EntityQuery, OrchestrationQuery
from durabletask.entities import EntityInstanceId

from tests.support.onebox.backends import SDK_NOTICE, Backend, eventually

pytestmark = SDK_NOTICE


@pytest.mark.parametrize(
    "call",
    [
        AsyncTaskHubGrpcClient.raise_orchestration_event,
        AsyncTaskHubGrpcClient.suspend_orchestration,
        AsyncTaskHubGrpcClient.resume_orchestration,
        AsyncTaskHubGrpcClient.restart_orchestration,
        AsyncTaskHubGrpcClient.rewind_orchestration,
        AsyncTaskHubGrpcClient.get_orchestration_history,
    ],
)
async def test_what_is_asked_of_nobody_is_not_found(backend: Backend, call: Any) -> None:
    arguments = ["nobody", "go"] if call is AsyncTaskHubGrpcClient.raise_orchestration_event else ["nobody"]
    with pytest.raises(grpc.RpcError) as refused:
        await call(backend.client, *arguments)
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


async def test_nobody_is_none_and_is_not_counted(backend: Backend) -> None:
    assert await backend.client.get_orchestration_state("nobody") is None
    assert (await backend.client.purge_orchestration("nobody")).deleted_instance_count == 0
    assert await backend.client.get_entity(EntityInstanceId("counter", "nobody")) is None


async def test_only_a_failed_one_can_be_rewound(backend: Backend) -> None:
    instance_id = (await backend.run("no_steps")).instance_id
    with pytest.raises(grpc.RpcError) as refused:
        await backend.client.rewind_orchestration(instance_id)
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_when_all_waits_for_all_and_then_raises_the_failure(backend: Backend) -> None:
    message, completed = (await backend.run("all_then_fail")).get_output()
    assert ("one of two" in message, completed) == (True, True)


async def test_when_any_returns_the_first(backend: Backend) -> None:
    assert (await backend.run("first_of", input=3)).get_output() is True


async def test_signals_of_an_orchestration_come_before_its_later_call(backend: Backend) -> None:
    assert (await backend.run("signal_then_call", input=2)).get_output() == 4


async def test_queries_by_the_time_of_creation(backend: Backend) -> None:
    await backend.run("no_steps", instance_id="early")
    between = datetime.now(UTC)
    await backend.run("no_steps", instance_id="late")
    query = OrchestrationQuery(created_time_from=between)
    assert [state.instance_id for state in await backend.client.get_all_orchestration_states(query)] == [
        "late"
    ]
    query = OrchestrationQuery(created_time_to=between)
    assert [state.instance_id for state in await backend.client.get_all_orchestration_states(query)] == [
        "early"
    ]


async def test_queries_entities_in_pages_with_and_without_their_state(backend: Backend) -> None:
    keys = [f"page-{number}" for number in range(5)]
    for key in keys:
        await backend.client.signal_entity(EntityInstanceId("counter", key), "add", input=1)

    async def all_have_counted() -> bool:
        # An entity is listed from the first signal to it on, and has a state once that has run.
        found = await backend.client.get_all_entities(EntityQuery("@counter@page-", include_state=True))
        return len(found) == len(keys) and all(entity.get_state() for entity in found)

    await eventually(all_have_counted)
    paged = EntityQuery("@counter@page-", page_size=2, include_state=True)
    found = await backend.client.get_all_entities(paged)
    assert sorted(entity.id.key for entity in found) == keys
    assert [entity.get_state(int) for entity in found] == [1] * len(keys)
    bare = await backend.client.get_all_entities(EntityQuery("@counter@page-", include_state=False))
    assert [entity.includes_state for entity in bare] == [False] * len(keys)


async def test_an_entity_is_found_by_the_time_of_its_change(backend: Backend) -> None:
    await backend.run("call_counter", input=1)
    later = datetime.now(UTC) + timedelta(seconds=1)
    assert await backend.client.get_all_entities(EntityQuery(last_modified_from=later)) == []
    assert len(await backend.client.get_all_entities(EntityQuery(last_modified_to=later))) == 1
