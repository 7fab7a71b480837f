"""Kill -9 around a request that a handler sends outside of a step.

Where the dependency does not deduplicate, what may have been sent is never sent again; what certainly was not
is sent once.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from durable_retry.rules.operations.keys import EXPLICIT_SCOPE, operation_id_for
from tests.fault.app.crash.held_life import HeldLife
from tests.support.azurite import Storage


@dataclass(frozen=True)
class Cut:
    """One operation that stands at a step when the process dies.

    Attributes:
        at: The step: before or after the marker, the request, or the note of its outcome.
        sent: How many requests the target has received in the end.
        is_ambiguous: Whether a person decides in the end.
        handler: `charge-unsafe`, or `charge` at a dependency that deduplicates.
    """

    at: str
    sent: int
    is_ambiguous: bool = False
    handler: str = "charge-unsafe"

    @property
    def key(self) -> str:
        return f"{self.handler}-{self.at}"

    @property
    def operation_id(self) -> str:
        return operation_id_for(EXPLICIT_SCOPE, self.key)

    @property
    def arguments(self) -> str:
        """A text in the arguments of the function that stands still."""
        return f"case={self.key}" if self.at.startswith("post") else self.operation_id


CUTS = [
    Cut("once.before", 1),
    Cut("once.after", 0, is_ambiguous=True),
    Cut("post.before", 0, is_ambiguous=True),
    Cut("post.after", 1, is_ambiguous=True),
    Cut("note.before", 1, is_ambiguous=True),
    Cut("note.after", 1),
    Cut("post.after", 2, handler="charge"),
]


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory, azurite: Storage) -> Iterator[HeldLife]:
    life = HeldLife(tmp_path_factory.mktemp("lives"), azurite, "tests.fault.app.step_handlers")
    try:
        points: dict[str, list[str]] = {}
        for cut in CUTS:
            points.setdefault(cut.at, []).append(cut.arguments)
        life.hold(points)
        for cut in CUTS:
            body = {"handler": cut.handler, "input": {"case": cut.key}, "key": cut.key}
            assert life.system.client.post("/api/operations", json=body).status_code == 202
        life.die(Counter(cut.at for cut in CUTS))
        life.begin_again()
        yield life
    finally:
        life.end()


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: cut.key)
@pytest.mark.shows("A18")
def test_a_kill_around_a_handlers_request_never_sends_it_twice(life: HeldLife, cut: Cut) -> None:
    ended = life.system.until(cut.operation_id, "dead_lettered" if cut.is_ambiguous else "succeeded")
    key = cut.key if cut.handler == "charge" else None
    assert life.keys_of(cut.key) == [key] * cut.sent
    if cut.is_ambiguous:
        assert ended["dead_letter"]["reason"] == "AmbiguousOutcome"
    else:
        assert ended["result"] == {"value": f"{cut.key}!"}
