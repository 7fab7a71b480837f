"""What starts on a newer worker and reaches an older one, which does not have its orchestrator."""

from collections.abc import AsyncIterator

import pytest
from durabletask.client import OrchestrationStatus

from durable_retry import clock
from durable_retry.console.bulk.actions import find_bulk_action, start_bulk_action
from durable_retry.console.bulk.bodies import BulkActionBody
from durable_retry.engine.base.names import RETENTION
from durable_retry.engine.config.dependencies_file import parse_config
from durable_retry.services.upkeep.rounds import RetentionKind, RetentionPart
from durable_retry.settings.configuration import using
from durable_retry.stores.task_hub import close_clients
from tests.integration.triggers.conftest import DEPENDENCIES
from tests.support.hub import TaskHubStage, task_hub_stage

pytestmark = pytest.mark.usefixtures("storage")


@pytest.fixture
async def older() -> AsyncIterator[TaskHubStage]:
    """A worker that has neither `bulk_action` nor `retention`."""
    with task_hub_stage(without=(RETENTION,)) as stage, using(parse_config(DEPENDENCIES, {})):
        yield stage
        await close_clients()


async def test_a_bulk_action_fails_visibly_and_has_done_nothing(older: TaskHubStage) -> None:
    body = BulkActionBody(action="archive", ids=["dl-1"])
    action_id = await start_bulk_action(older.binding, body, None, matched=1, now=clock.now(), by=None)
    assert await older.binding.wait_for_end(action_id, 20) is not None
    document = await find_bulk_action(older.binding, action_id)
    assert document is not None
    assert (document.status, document.done, document.remaining) == ("failed", 0, 1)
    assert older.activities == []


async def test_retention_fails_and_the_next_look_starts_it_again(older: TaskHubStage) -> None:
    part = RetentionPart(RetentionKind.DEAD_LETTERS, 0)
    given = {"kind": part.kind, "shard": part.shard}
    for _ in range(2):
        assert await older.binding.start_instance(RETENTION, part.instance_id, given, again=True)
        ended = await older.binding.wait_for_end(part.instance_id, 20)
        assert ended is not None
        assert ended.runtime_status is OrchestrationStatus.FAILED
