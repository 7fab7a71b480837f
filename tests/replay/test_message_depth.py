"""The Functions host reads at most 64 levels of JSON in a message; the deepest that is accepted must fit."""

import json
from collections.abc import Iterator
from typing import Any, Final
from unittest.mock import patch

from durable_retry.base import names
from durable_retry.base.documents import MAX_DEPTH
from durable_retry.features.circuit_controls.names import WAKE_WAITING
from durable_retry.features.diagnosis import names as diagnosis_names
from durable_retry.features.in_process.names import LOOK_AT_CALL, START_CALL
from durable_retry.features.order.names import LOOK_AT_LANE
from durable_retry.features.outbox import names as outbox_names
from durable_retry.features.retention.names import REMOVE_PAST
from durable_retry.features.workflows import names as workflow_names
from durable_retry.hub.orchestrations import orchestrations
from durable_retry_console.bulk import names as bulk_names
from tests.replay.stored import recorded_messages
from tests.simulation.entities import Operated
from tests.simulation.messages import Instance
from tests.simulation.story import Story, simulated
from tests.support.history import CallActivity

HOST_LEVELS: Final = 62
"""The host reads 64 levels of a whole message, with what it wraps around ours."""

SEEDS: Final = (1, 11, 16)
"""Small worlds in which operations have order keys, limits and dead letters."""

CONTENT: Final = frozenset({"json", "input", "data", "value"})
"""Members that hold what callers, dependencies and handlers sent."""


def nested(levels: int) -> Any:
    """Return a document of so many levels."""
    document: Any = []
    for _ in range(levels - 1):
        document = [document]
    return document


def levels_of(document: Any) -> int:
    """Count objects and lists inside of one another."""
    if isinstance(document, dict):
        return 1 + max(map(levels_of, document.values()), default=0)
    return 1 + max(map(levels_of, document), default=0) if isinstance(document, list) else 0


def filled(message: Any) -> Any:
    """Return a message with the deepest content that is accepted wherever it has any."""
    if isinstance(message, list):
        return [filled(each) for each in message]
    if not isinstance(message, dict):
        return message
    deepest = {name: nested(MAX_DEPTH) for name in CONTENT & message.keys()}
    if "on_success" in message:
        deepest["on_success"] = [{"data": nested(MAX_DEPTH)}]
    if isinstance(message.get("values"), dict):
        # A part of a step's result: at most the whole, whose `json` is the deepest answer.
        deepest["values"] = {"": nested(MAX_DEPTH + 1)}
    return {name: filled(value) for name, value in message.items()} | deepest


def messages_of_a_world(seed: int, operations: int) -> list[tuple[str, Any]]:
    """Return what instances were given and returned, and what activities and entities were given."""
    messages: list[tuple[str, Any]] = []
    note_end, note_change = Story.ended, Story.changed

    def ended(story: Story, instance: Instance) -> None:
        note_end(story, instance)
        messages.append((f"input of {instance.name}", json.loads(instance.input)))
        messages.append((f"output of {instance.name}", json.loads(instance.output or "null")))
        messages.extend(
            (f"input of {event.name}", json.loads(event.input))
            for event in instance.past
            if isinstance(event, CallActivity)
        )

    def changed(story: Story, operated: Operated) -> None:
        note_change(story, operated)
        messages.append((f"input of {operated.operation}", operated.given))
        messages.append((f"state of {operated.name}", operated.after))

    with patch.object(Story, "ended", ended), patch.object(Story, "changed", changed):
        simulated(seed, operations)
    return messages


def messages() -> Iterator[tuple[str, Any]]:
    """Give messages of simulated worlds, and those in recorded histories."""
    for seed in SEEDS:
        yield from messages_of_a_world(seed, 6)
    yield from ((name, document) for _, name, document in recorded_messages())


ACTIVITIES: Final = (
    *(names.ATTEMPT, names.COMMIT, names.DEAD_LETTER, outbox_names.OUTBOX_PENDING, outbox_names.PUBLISH),
    *(
        outbox_names.OUTBOX_GIVE_UP,
        workflow_names.SUBMIT,
        workflow_names.BATCH_STEP,
        workflow_names.BATCH_CLOSE,
    ),
    *(bulk_names.BULK_PAGE, bulk_names.BULK_BATCH, WAKE_WAITING, START_CALL),
    *(bulk_names.BULK_ENDS, LOOK_AT_CALL, LOOK_AT_LANE, REMOVE_PAST, diagnosis_names.DIAGNOSE),
)


def test_every_message_with_the_deepest_content_has_levels_to_spare() -> None:
    depths: dict[str, int] = {}
    for name, message in messages():
        depths[name] = max(depths.get(name, 0), levels_of(filled(message)))
    asked = [*ACTIVITIES, *orchestrations(), names.REPORT, names.PERMIT, names.ACQUIRE]
    assert {f"input of {name}" for name in asked} <= depths.keys()
    assert {name: depth for name, depth in depths.items() if depth > HOST_LEVELS} == {}
    assert max(depths.values()) > MAX_DEPTH + 5, "no message carries content any more: is this test blind?"
