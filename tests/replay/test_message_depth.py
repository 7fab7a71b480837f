"""The Functions host reads at most 64 levels of JSON in a message; the deepest that is accepted must fit."""

from collections.abc import Iterator
from typing import Any, Final

from durable_retry.engine.base import names
from durable_retry.engine.base.json_input import MAX_DEPTH
from tests.replay.stored import RELEASES, TODAY, load, recorded_messages

HOST_LEVELS: Final = 62
"""The host reads 64 levels of a whole message, with what it wraps around ours."""

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


def messages() -> Iterator[tuple[str, Any]]:
    """Give every message that is recorded: in simulated worlds, and in histories."""
    for version in (TODAY, *RELEASES):
        for name, documents in load(version, "messages").items():
            yield from ((name, document) for document in documents)
    yield from ((name, document) for _, name, document in recorded_messages())


ACTIVITIES: Final = (
    *(names.ATTEMPT, names.COMMIT, names.DEAD_LETTER, names.OUTBOX_PENDING, names.PUBLISH),
    *(names.OUTBOX_GIVE_UP, names.SUBMIT, names.BATCH_STEP, names.BATCH_CLOSE, names.REPLAY_PAGE),
    *(names.REPLAY_BATCH, names.BULK_PAGE, names.BULK_BATCH, names.WAKE_WAITING, names.START_CALL),
    *(names.BULK_ENDS, names.LOOK_AT_CALL, names.LOOK_AT_LANE, names.REMOVE_PAST, names.DIAGNOSE),
)


def test_every_message_with_the_deepest_content_has_levels_to_spare() -> None:
    depths: dict[str, int] = {}
    for name, message in messages():
        depths[name] = max(depths.get(name, 0), levels_of(filled(message)))
    asked = [*ACTIVITIES, *names.ORCHESTRATIONS, names.REPORT, names.PERMIT, names.ACQUIRE]
    assert {f"input of {name}" for name in asked} <= depths.keys()
    assert {name: depth for name, depth in depths.items() if depth > HOST_LEVELS} == {}
    assert max(depths.values()) > MAX_DEPTH + 5, "no message carries content any more: is this test blind?"
