"""What holds of the circuits of limit keys, at the dependency that has one for each."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from durable_retry.base.names import DeadLetterReason
from durable_retry.rules.retry.history import WaitKind
from tests.simulation.story import RunEnd, Story
from tests.simulation.targets import REVOKED, TENANTS

_BY_HAND: Final = ("the circuit is held open", "released in turn")
"""Reasons of waits that begin with a hold by hand, and the release after it."""

_SEEN_WITHIN: Final = timedelta(seconds=5)
"""By then every worker acts on the state of a circuit, and what it let through before has called."""

_RECOVERED_WITHIN: Final = timedelta(minutes=15)
"""A break is two minutes at most, and a message ten minutes late."""


def keys_stand_alone(story: Story) -> Iterator[str]:
    """No operation waits for a circuit, but for a hold by hand, where all calls of its limit key succeed."""
    for end in _ends_of_keys(story):
        for wait in end.document.get("waits", ()):
            is_by_hand = any(reason.startswith(_BY_HAND) for reason in wait["delay_reasons"])
            if wait["kind"] == WaitKind.CIRCUIT and end.operation.limit_key != REVOKED and not is_by_hand:
                yield f"{end.operation.run_id} of {end.operation.limit_key} waited: {wait['delay_reasons']}"


def open_keys_are_left_alone(story: Story) -> Iterator[str]:
    """While the circuit of a key is open nobody of it calls, unless somebody asked for a try.

    Where the task hub does not answer, calls go without their circuit.
    """
    for call in story.app.targets[TENANTS].calls if _has_keys(story) and story.world.is_punctual else ():
        operation = call.operation
        for limit_key, since, until in story.circuits.breaks.values():
            is_meant = limit_key == operation.limit_key and since + _SEEN_WITHIN < call.at < until
            if is_meant and operation.operation_id not in story.people.hurried:
                yield f"{operation.run_id} called at {call.at}, {limit_key} was open from {since} to {until}"


def keys_recover(story: Story) -> Iterator[str]:
    """What waited for the circuit of a key succeeds when its calls do, unless it was too late before."""
    storm_seconds = story.world.scale.storm_seconds
    for end in _ends_of_keys(story):
        letter, deadline_at = end.document["dead_letter"], end.operation.deadline_at
        restored_at = story.world.lives[end.life - 1] + timedelta(seconds=storm_seconds)
        is_late = deadline_at is not None and deadline_at < restored_at + _RECOVERED_WITHIN
        if letter is None or letter["reason"] == DeadLetterReason.REJECTED_BY_DEPENDENCY or is_late:
            continue
        yield f"{end.operation.run_id} of {end.operation.limit_key} ended as {letter['reason']}"


def whoever_waits_is_woken(story: Story) -> Iterator[str]:
    """When a circuit was closed by hand, all that waited for it before hear of that."""
    yield from story.circuits.not_woken


def _has_keys(story: Story) -> bool:
    return TENANTS in story.app.targets


def _ends_of_keys(story: Story) -> Iterator[RunEnd]:
    yield from (end for end in story.ends if end.operation.dependency == TENANTS)
