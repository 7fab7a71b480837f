"""What holds of calls by orchestrators of the app around the engine."""

import json
from collections.abc import Iterator

from durabletask.client import OrchestrationStatus

from durable_retry.features.in_process.names import CALL_SOURCE
from tests.simulation.regulars import REGULAR, ROUNDS
from tests.simulation.story import Story


def calls_are_answered(story: Story) -> Iterator[str]:
    """Each call by an orchestrator runs an operation of its own, and gives the result of that one."""
    for number in sorted(story.people.regulars):
        instance = story.app.hub.instances[f"{REGULAR}-{number}"]
        if instance.status is not OrchestrationStatus.COMPLETED:
            yield f"{instance.instance_id} did not end"
            continue
        path, got = f"/regulars/{number}", json.loads(instance.output or "null")
        ends = [
            end
            for end in story.ends
            if end.operation.source == CALL_SOURCE and (end.operation.request or {})["path"] == path
        ]
        operations = {end.operation.operation_id for end in ends}
        if len(operations) != ROUNDS:
            yield f"{instance.instance_id} called {ROUNDS} times, and {len(operations)} operations ran"
        failed = [each for each in got if isinstance(each, str)]
        dead = {end.operation.operation_id for end in ends if not end.succeeded}
        # The report of a dead letter may be under way for longer than its replay takes.
        replayed = dead & {end.operation.operation_id for end in ends if end.succeeded}
        if not len(dead - replayed) <= len(failed) <= len(dead):
            yield f"{instance.instance_id} was told {failed}, and {len(dead)} operations did not succeed"
