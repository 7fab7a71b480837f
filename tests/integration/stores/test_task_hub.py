import asyncio
from collections import OrderedDict
from dataclasses import replace
from typing import Any

import pytest

from durable_retry.attempt import attempt
from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.hub.task_hub import TaskHub, close_clients
from durable_retry.operations.actions import Replayed, Started, submit
from durable_retry.operations.entities import read_record
from durable_retry.operations.status import document_of, find_status
from durable_retry.rules.operations.operation import CONTENT_BYTES
from scripts.processes import free_port
from tests.support.builders import an_operation
from tests.support.feature_parts import followed_by
from tests.support.hub import TaskHubStage, binding_for
from tests.support.narrowing import existing
from tests.support.polling import until
from tests.support.silent_server import silent_server

WAIT_SECONDS = 20


async def finished(hub: TaskHubStage, operation_id: str) -> dict[str, object]:
    return document_of(existing(await hub.binding.wait_for_end(operation_id, WAIT_SECONDS)))


async def until_recorded(hub: TaskHubStage) -> None:
    """Wait for the record, which is completed by a signal after the orchestration ended."""

    async def is_complete() -> bool:
        record = await read_record(hub.binding, "op-test")
        return record is not None and record.document is not None

    await until(is_complete)


@pytest.mark.shows("C2")
async def test_of_fifty_at_once_one_starts_and_one_attempt_is_made(task_hub: TaskHubStage) -> None:
    answers = await asyncio.gather(
        *(submit(task_hub.binding, an_operation(deadline_in=None)) for _ in range(50))
    )
    assert sum(isinstance(answer, Started) for answer in answers) == 1
    await finished(task_hub, "op-test")
    assert len(task_hub.activities) == 1


async def test_a_purged_operation_is_answered_from_its_record(task_hub: TaskHubStage) -> None:
    await submit(task_hub.binding, an_operation(deadline_in=None))
    document = await finished(task_hub, "op-test")
    client = await task_hub.binding.client()
    await until_recorded(task_hub)
    await client.purge_orchestration("op-test")
    assert await find_status(task_hub.binding, "op-test") == document
    assert await submit(task_hub.binding, an_operation(deadline_in=None)) == Replayed(document, finished=True)


async def test_a_task_hub_that_is_away_has_an_error_of_its_own() -> None:
    hub = binding_for(free_port())
    with pytest.raises(TaskHubUnavailableError, match="UNAVAILABLE"):
        await submit(hub, an_operation(deadline_in=None))
    with pytest.raises(TaskHubUnavailableError):
        await hub.check()
    await close_clients()


@pytest.mark.shows("P1")
async def test_a_task_hub_that_takes_a_call_and_never_answers_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("durable_retry.hub.task_hub._ANSWER_SECONDS", 0.3)
    async with silent_server() as port:
        hub = binding_for(port)
        for call in (hub.check(), submit(hub, an_operation(deadline_in=None)), hub.read_history("op-test")):
            async with asyncio.timeout(WAIT_SECONDS):
                with pytest.raises(TaskHubUnavailableError, match="DEADLINE_EXCEEDED"):
                    await call
        await close_clients()


async def test_a_wait_for_an_end_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("durable_retry.hub.task_hub._ANSWER_SECONDS", 0.1)
    loop = asyncio.get_running_loop()
    async with silent_server() as port:
        began = loop.time()
        assert await binding_for(port).wait_for_end("op-test", 1.0) is None
        assert loop.time() - began >= 0.9
        await close_clients()


async def test_a_client_has_no_interceptor_that_keeps_a_host_from_answering_in_its_process() -> None:
    async with silent_server() as port:
        client = await binding_for(port).client()
        modules = {type(each).__module__.partition(".")[0] for each in client._interceptors}
        assert modules <= {"durabletask", "azure"}
        await close_clients()


async def test_one_client_serves_a_loop(task_hub: TaskHubStage) -> None:
    first = await task_hub.binding.client()
    assert await task_hub.binding.client() is first


async def test_a_large_operation_is_read_from_its_instance(
    task_hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "_read", OrderedDict())
    large = an_operation(
        deadline_in=None, request={"method": "POST", "path": "/", "json": "x" * CONTENT_BYTES}
    )
    await submit(task_hub.binding, replace(large, **followed_by({"to": "queue:a"})))
    await finished(task_hub, "op-test")
    ((_, given),) = [each for each in task_hub.activities if each[0] == "attempt"]
    assert "operation" not in given
    assert await attempt.read_large(task_hub.binding, "op-test", given["input_id"]) == large
    with pytest.raises(attempt.OperationElsewhereError):
        await attempt.read_large(task_hub.binding, "op-test", "another")
    with pytest.raises(attempt.OperationElsewhereError):
        await attempt.read_large(task_hub.binding, "op-other", given["input_id"])


async def test_a_process_reads_a_large_operation_once_and_remembers_some(
    task_hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "_read", OrderedDict())
    monkeypatch.setattr(attempt, "_MOST_READ", 1)
    reads: list[str] = []
    read_instance = TaskHub.read_instance

    async def counted(hub: TaskHub, operation_id: str) -> Any:
        reads.append(operation_id)
        return await read_instance(hub, operation_id)

    monkeypatch.setattr(TaskHub, "read_instance", counted)
    for name in ("op-1", "op-2"):
        large = an_operation(operation_id=name, deadline_in=None, request=None, input="x" * CONTENT_BYTES)
        await task_hub.binding.start_operation(large, f"start of {name}")
    for name in ("op-1", "op-1", "op-2", "op-1"):
        await attempt.read_large(task_hub.binding, name, f"start of {name}")
    assert reads == ["op-1", "op-2", "op-1"]
