from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from durable_retry.base.names import OperationState
from durable_retry.dead_letters.records import change_dead_letter, keep_operation
from durable_retry.features.handlers.records import change_step
from durable_retry.features.handlers.removal import STEPS
from durable_retry.features.handlers.rules.steps import (
    Execution,
    begin_step,
)
from durable_retry.features.handlers.shown import steps_shown
from durable_retry.features.retention import walks
from durable_retry.features.retention.walks import MARKERS_KEPT, remove_in_partitions
from durable_retry.operations.actions import submit
from durable_retry.rules.dead_letters.record import Replay, dead_letter_id_of
from durable_retry.runtime import clock
from durable_retry.upkeep.removal import Past
from durable_retry.upkeep.rounds import run_maintenance
from tests.support.builders import an_operation, failing
from tests.support.hub import TaskHubStage

NOW = datetime.now(UTC)
OLD = NOW - MARKERS_KEPT - timedelta(seconds=1)


pytestmark = pytest.mark.usefixtures("own_tables")


async def remember(operation_id: str, changed_at: datetime = OLD, letter: str = "dl-none") -> None:
    for name in ("first", "second"):
        execution = Execution(
            name=name, run=1, token="t", is_repeatable=True, now=changed_at, dead_letter_id=letter
        )
        with clock.reading(lambda: changed_at):
            await change_step(operation_id, 1, name, partial(begin_step, execution=execution))


async def left(operation_id: str) -> int:
    return len((await steps_shown(operation_id, 1, OperationState.RUNNING))[0])


async def removed(hub: TaskHubStage) -> int:
    return (await removed_at(hub, NOW))[0]


async def removed_at(hub: TaskHubStage, now: datetime, after: str = "", shard: int = 1) -> tuple[int, str]:
    """Remove those of a part; the second is between b and j."""
    return await remove_in_partitions(
        STEPS, Past(hub=hub.binding, now=now, before=now - MARKERS_KEPT, after=after, shard=shard)
    )


async def letter_of(operation_id: str, **changes: Any) -> str:
    operation = an_operation(operation_id=operation_id, handler="h", request=None, **changes).to_json()
    failure = {"category": "transient", "reason": "RetriesExhausted", "detail": "", "attempts": []}
    kept = await keep_operation({"operation": operation, **failure}, NOW)
    assert kept == dead_letter_id_of(operation)
    return kept


async def test_steps_stay_as_long_as_the_record_of_their_key(hub: TaskHubStage) -> None:
    hub.answer = failing(0)
    await submit(hub.binding, an_operation(operation_id="op-ended", created_at=NOW, deadline_at=None))
    assert await hub.binding.wait_for_end("op-ended", 20) is not None
    await remember("op-ended")
    await remember("op-gone")
    await remember("op-young", NOW)
    await run_maintenance(hub.binding, NOW)
    assert [await left(each) for each in ("op-ended", "op-gone", "op-young")] == [2, 0, 2]
    later = NOW + timedelta(days=3)
    assert [(await removed_at(hub, later, shard=shard))[0] for shard in range(4)] == [0, 1, 0, 1]


async def test_steps_stay_as_long_as_a_dead_letter_may_be_replayed_with_them(hub: TaskHubStage) -> None:
    letter = await letter_of("op-dead")
    await remember("op-dead", letter=letter)
    assert await removed(hub) == 0

    await letter_of("op-dead", replay_of=letter)
    assert await removed(hub) == 0  # what its replay became may be replayed
    over = Replay(operation_id="op-dead", requested_at=NOW, operation={})
    await change_dead_letter(letter, lambda kept: replace(kept, replays=(over,)))
    assert await removed(hub) == 1
    assert await left("op-dead") == 0


async def test_a_bounded_number_is_looked_at_each_time(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walks, "ROWS_PER_STEP", 3)
    for name in ("op-c", "op-d"):
        await remember(name)
    assert await removed_at(hub, NOW) == (1, "op-c")
    assert await removed_at(hub, NOW, "op-c") == (1, "")
