"""Kill -9 between any two writes of an operation: one operation stands at each step when the process dies.

Whatever the step, at the end: one end state, one key at the target, one event under one id, the record of the
key answers for ever after, and an unsafe request that may have been sent is never sent again.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from durable_retry.rules.operations.keys import EXPLICIT_SCOPE, operation_id_for
from scripts.processes import eventually
from tests.fault.app.crash.held_life import HeldLife
from tests.support.app import System
from tests.support.azurite import Storage

pytestmark = pytest.mark.long


QUEUE = "order-of-writes"
INSTANCES = "/runtime/webhooks/durabletask/instances"
RECORDS = "/runtime/webhooks/durabletask/entities/idempotency_record"


@dataclass(frozen=True)
class Cut:
    """One operation that stands at a step when the process dies.

    Attributes:
        at: The step.
        received: How many requests the target has received in the end.
        ambiguous: Whether it ends as a dead letter for a person, since nobody knows whether it was sent.
        dependency: `unsafe` does not deduplicate, `flaky` does.
    """

    at: str
    received: int = 1
    ambiguous: bool = False
    dependency: str = "unsafe"

    @property
    def key(self) -> str:
        return f"{self.at}-{self.dependency}"

    @property
    def operation_id(self) -> str:
        return operation_id_for(EXPLICIT_SCOPE, self.key)


CUTS = [
    Cut("begin.before"),
    Cut("marker.before"),
    Cut("marker.after", received=0, ambiguous=True),
    Cut("call.before", received=0, ambiguous=True),
    Cut("call.after", ambiguous=True),
    Cut("note.before", ambiguous=True),
    Cut("note.after"),
    Cut("call.before", dependency="flaky"),
    Cut("call.after", received=2, dependency="flaky"),
    Cut("take.before"),
    Cut("take.after"),
    Cut("commit.before"),
    Cut("commit.after"),
    Cut("outbox.before"),
    Cut("outbox.after"),
    Cut("complete.before"),
    Cut("complete.after"),
    Cut("pending.before"),
    Cut("pending.after"),
    Cut("send.before"),
    Cut("send.after"),
    Cut("sent.before"),
    Cut("sent.after"),
]


class Life(HeldLife):
    """The second life of an app that was killed while one operation stood at each step."""

    def post(self, cut: Cut) -> httpx.Response:
        events = [{"type": "charge.completed", "queue": QUEUE, "data": {"key": cut.key}}]
        return self.system.post(
            cut.key, f"/echo?case={cut.key}!", dependency=cut.dependency, on_success=events
        )

    def received(self, cut: Cut) -> list[str | None]:
        """The idempotency key of each request that the target received for an operation."""
        return self.keys_of(cut.key)


def lived(life: Life) -> None:
    points: dict[str, list[str]] = {}
    for cut in CUTS:
        points.setdefault(cut.at, []).extend((cut.operation_id, f"{cut.key}!"))
    life.hold(points)
    for cut in CUTS:
        assert life.post(cut).status_code == 202
    life.die(Counter(cut.at for cut in CUTS))


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory, azurite: Storage) -> Iterator[Life]:
    life = Life(tmp_path_factory.mktemp("lives"), azurite)
    try:
        lived(life)
        life.begin_again()
        yield life
    finally:
        life.end()


def events_of(storage: Storage, cut: Cut) -> set[str]:
    return {body["id"] for body in storage.peeked(QUEUE) if body["data"] == {"key": cut.key}}


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: cut.key)
@pytest.mark.shows("A3", "A4")
def test_a_kill_between_any_two_writes_ends_in_the_same_place(life: Life, azurite: Storage, cut: Cut) -> None:
    system = life.system
    ended = system.until(cut.operation_id, "dead_lettered" if cut.ambiguous else "succeeded")
    assert ended["attempt_count"] == 1, ended
    assert life.received(cut) == [cut.key if cut.dependency == "flaky" else None] * cut.received
    if cut.ambiguous:
        assert ended["dead_letter"]["reason"] == "AmbiguousOutcome"
        assert system.client.get(f"/api/dead-letters/{ended['dead_letter']['id']}").status_code == 200
        assert events_of(azurite, cut) == set()
    else:
        eventually(lambda: system.status(cut.operation_id)["events"][0]["state"] == "sent", "it is sent")
        assert events_of(azurite, cut) == {system.status(cut.operation_id)["events"][0]["event_id"]}

    final = system.status(cut.operation_id)
    eventually(
        lambda: system.client.get(f"{RECORDS}/{cut.operation_id}").status_code == 200, "it is recorded"
    )
    assert purged(system, cut.operation_id)
    again = eventually(lambda: finished(life.post(cut)), "the record of the key answers")
    assert again == final
    assert len(life.received(cut)) == cut.received


def purged(system: System, operation_id: str) -> bool:
    return system.client.delete(f"{INSTANCES}/{operation_id}").status_code == 200


def finished(answer: httpx.Response) -> dict[str, Any] | None:
    assert answer.status_code in {200, 202}, answer.text
    return answer.json() if answer.status_code == 200 else None
