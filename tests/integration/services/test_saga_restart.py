from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from unittest.mock import AsyncMock
from uuid import uuid4

import pytest
from azure.core.exceptions import AzureError
from durabletask.client import OrchestrationStatus

from durable_retry.dead_letters.records import find_dead_letter
from durable_retry.features.workflows import sagas
from durable_retry.features.workflows.batches import refuse_item
from durable_retry.features.workflows.names import SAGA
from durable_retry.features.workflows.rules.restart import RestartBody
from durable_retry.features.workflows.rules.shapes import Saga, SagaStep
from durable_retry.features.workflows.saga_store import RestartStage, latest_restart
from durable_retry.features.workflows.sagas import WrongSagaStateError
from durable_retry.hub.task_hub import TaskHub, close_clients
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.dead_letters.record import Status, WrongStatusError, dead_letter_id_of
from durable_retry.settings.configuration import using
from tests.support.builders import NOON, an_operation
from tests.support.hub import task_hub_stage
from tests.support.narrowing import existing
from tests.support.polling import until

pytestmark = pytest.mark.usefixtures("storage")


@dataclass(frozen=True, slots=True)
class FailedSaga:
    """A saga that is over since its only step was refused, which left a dead letter."""

    hub: TaskHub
    saga_id: str
    letter_id: str

    async def restart(self) -> Any:
        return await sagas.restart_saga(self.hub, self.saga_id, RestartBody(), "ada")

    async def letter_status(self) -> Status:
        return existing(await find_dead_letter(self.letter_id)).status


@pytest.fixture
async def failed() -> AsyncIterator[FailedSaga]:
    name = uuid4().hex
    operation = an_operation(operation_id=f"op-{name}", key=name)
    step = SagaStep(name="charge", operation=operation)
    saga = Saga(
        saga_id=f"saga-{name}",
        steps=(step.ended(await refuse_item(operation, "no", NOON), None),),
        created_at=NOON,
    )
    with task_hub_stage(parts=True) as stage:
        await stage.binding.start_instance(SAGA, saga.saga_id, {"saga": saga.to_json()}, again=False)
        await until(lambda: _is_over(stage.binding, saga.saga_id))
        with using(parse_config("", {})):
            yield FailedSaga(stage.binding, saga.saga_id, dead_letter_id_of(operation.to_json()))
        await close_clients()


async def test_the_end_of_a_step_that_cannot_run_names_its_dead_letter() -> None:
    operation = an_operation(operation_id=f"op-{uuid4().hex}", key=uuid4().hex)
    end = await refuse_item(operation, "no", NOON)
    assert end.dead_letter_id == dead_letter_id_of(operation.to_json())


async def _is_over(hub: TaskHub, saga_id: str) -> bool:
    instance = await hub.read_instance(saga_id)
    return instance is not None and instance.runtime_status is OrchestrationStatus.COMPLETED


async def test_a_restart_that_cannot_be_written_archives_nothing(
    failed: FailedSaga, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise AzureError("away")

    with monkeypatch.context() as outage:
        outage.setattr(sagas, "write_restart", away)
        with pytest.raises(AzureError):
            await failed.restart()
    assert await failed.letter_status() is Status.OPEN
    assert (await failed.restart()).runs == ("charge",)
    assert await failed.letter_status() is Status.ARCHIVED


async def test_a_written_restart_whose_step_was_just_replayed_is_over_and_the_next_one_runs(
    failed: FailedSaga, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as race:
        race.setattr(sagas, "archive", AsyncMock(side_effect=WrongStatusError(Status.REPLAYED)))
        with pytest.raises(WrongSagaStateError, match="just replayed"):
            await failed.restart()
    refused = existing(await latest_restart(failed.saga_id))
    assert refused.stage is RestartStage.ENDED
    assert (await sagas.begin_run(failed.saga_id, refused.token))["restart"] is None
    assert (await failed.restart()).restart == 1
