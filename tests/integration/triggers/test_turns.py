"""The list of docs/sizing.md, "turn by turn", beside the history of an operation."""

import re
from typing import Final

from durabletask import history

from docs.sizing import COUNTED_REQUESTS
from durable_retry.operations.actions import submit
from durable_retry.runtime import clock
from scripts.processes import ROOT
from tests.support.builders import an_operation
from tests.support.hub import TaskHubStage

ROW: Final = re.compile(r"^\| ((?:start|turn|entity)\b[^|]*?) \| (\d+) \| ([^|]+) \|", re.MULTILINE)
STEPS: Final = {
    name: (int(requests), made_of)
    for name, requests, made_of in ROW.findall((ROOT / "docs/sizing.md").read_text())
}
UNITS: Final = 3  # requests of a message, a turn, a batch or an activity


async def steps_of(hub: TaskHubStage) -> list[str]:
    """Return what happens to an operation that succeeds at once, from its history."""
    operation = an_operation(operation_id="op-turns", created_at=clock.now(), deadline_at=None)
    await submit(hub.binding, operation)
    client = await hub.binding.client()
    await client.wait_for_orchestration_completion("op-turns", timeout=30)
    steps: list[str] = []
    for event in await client.get_orchestration_history("op-turns"):
        match event:
            case history.OrchestratorStartedEvent():
                steps.append("turn")
            case history.ExecutionStartedEvent():
                steps.append("start")
            case history.EntityOperationCalledEvent() | history.EntityOperationSignaledEvent():
                steps.append("entity")
            case history.TaskScheduledEvent():
                steps.append("activity")
    return steps


async def test_the_list_has_the_turns_and_batches_of_an_operation(hub: TaskHubStage) -> None:
    steps = await steps_of(hub)
    for kind in ("start", "turn", "entity"):
        listed = [name for name in STEPS if name.split(":")[0] == kind]
        assert len(listed) == steps.count(kind), kind
    assert sum("activity 3" in made_of for _, made_of in STEPS.values()) == steps.count("activity")


def test_the_list_adds_up_to_what_is_counted() -> None:
    assert sum(requests for requests, _ in STEPS.values()) == COUNTED_REQUESTS
    for requests, made_of in STEPS.values():
        assert requests == sum(map(int, re.findall(r"\b(\d)\b", made_of)))
        assert requests % UNITS == 0
