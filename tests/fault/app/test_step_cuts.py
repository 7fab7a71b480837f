"""Kill -9 at every boundary of a handler's remembered steps.

A step that has a result is never run again. One whose end is not known is run again under its key where the
dependency deduplicates; where it does not, a person decides.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from durable_retry.rules.operations.keys import EXPLICIT_SCOPE, operation_id_for
from tests.fault.app.crash.held_life import HeldLife
from tests.support.azurite import Storage


@dataclass(frozen=True)
class Cut:
    """One operation that stands at a boundary of a step when the process dies.

    Attributes:
        step: Which.
        write: `begin_step`, before the step runs, or `complete_step`, when it has run.
        when: Before or after that write.
        handler: `both` of a dependency that deduplicates, or `both-unsafe`.
    """

    step: str
    write: str
    when: str
    handler: str

    @property
    def key(self) -> str:
        return f"{self.handler}-{self.step}-{self.write}-{self.when}"

    @property
    def operation_id(self) -> str:
        return operation_id_for(EXPLICIT_SCOPE, self.key)

    @property
    def may_have_run(self) -> bool:
        """Whether nobody knows, after the crash, whether the step ran."""
        return (self.write, self.when) in {("begin_step", "after"), ("complete_step", "before")}

    @property
    def is_ambiguous(self) -> bool:
        return self.may_have_run and self.handler == "both-unsafe"

    def sent(self, step: str) -> int:
        """How many requests of a step reach the target in the end."""
        if step != self.step:
            return int(step == "charge" or not self.is_ambiguous)
        if self.is_ambiguous:
            return int(self.write == "complete_step")
        return 2 if (self.write, self.when) == ("complete_step", "before") else 1


CUTS = [
    Cut(step, write, when, handler)
    for handler in ("both", "both-unsafe")
    for step in ("charge", "mail")
    for write in ("begin_step", "complete_step")
    for when in ("before", "after")
]


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory, azurite: Storage) -> Iterator[HeldLife]:
    folder = tmp_path_factory.mktemp("lives")
    life = HeldLife(folder, azurite, "tests.fault.app.step_handlers")
    try:
        points: dict[str, list[str]] = {"step.before": [], "step.after": []}
        for cut in CUTS:
            points[f"step.{cut.when}"].append(f"{cut.operation_id}&'{cut.step}'&function {cut.write}")
        life.hold(points)
        for cut in CUTS:
            body = {"handler": cut.handler, "input": {"case": cut.key}, "key": cut.key}
            assert life.system.client.post("/api/operations", json=body).status_code == 202
        life.die(Counter(f"step.{cut.when}" for cut in CUTS))
        life.begin_again()
        yield life
    finally:
        life.end()


def steps_of(document: dict[str, Any]) -> list[tuple[str, str, int]]:
    return [(step["name"], step["status"], step["attempts"]) for step in document["steps"]]


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: cut.key)
@pytest.mark.shows("A17")
def test_a_kill_at_a_boundary_of_a_step_runs_no_finished_step_again(life: HeldLife, cut: Cut) -> None:
    ended = life.system.until(cut.operation_id, "dead_lettered" if cut.is_ambiguous else "succeeded")
    for step in ("charge", "mail"):
        key = f"{cut.key}~{step}" if cut.handler == "both" else None
        assert life.keys_of(f"{cut.key}-{step}") == [key] * cut.sent(step), step
    if not cut.is_ambiguous:
        assert steps_of(ended) == [("charge", "succeeded", 1), ("mail", "succeeded", 1)]
        assert [step["result"] for step in ended["steps"]] == [f"{cut.key}-charge!", f"{cut.key}-mail!"]
        return
    assert ended["dead_letter"]["reason"] == "AmbiguousOutcome"
    done = [("charge", "succeeded", 1)] if cut.step == "mail" else []
    assert steps_of(ended) == [*done, (cut.step, "unknown", 1)]


@pytest.mark.parametrize("cut", [cut for cut in CUTS if cut.is_ambiguous], ids=lambda cut: cut.key)
@pytest.mark.shows("A18")
def test_a_replay_runs_the_step_in_doubt_again_and_no_finished_one(life: HeldLife, cut: Cut) -> None:
    ended = life.system.until(cut.operation_id, "dead_lettered")
    before = len(life.keys_of(f"{cut.key}-charge"))
    path = f"/api/dead-letters/{ended['dead_letter']['id']}/replay"
    assert life.system.client.post(path, json={}).status_code == 202
    done = life.system.until(cut.operation_id, "succeeded")
    assert steps_of(done) == [("charge", "succeeded", 1), ("mail", "succeeded", 1)]
    assert len(life.keys_of(f"{cut.key}-charge")) == before + (cut.step == "charge")
