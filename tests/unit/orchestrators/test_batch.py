from typing import Any

from durable_retry.features.workflows.rules.shapes import BatchProgress, step_sizes
from orchestrators.batch import batch
from tests.support.cuts import PartStage


def test_the_answer_for_another_step_starts_nothing() -> None:
    """A turn that was lost may have asked to start fewer items than when it runs again."""
    started: list[int] = []
    of_lost_turn = [{"running": [], "sizes": [0, 1]}]

    def answer(name: str, given: dict[str, Any]) -> Any:
        if name == "batch_step" and of_lost_turn:
            return of_lost_turn.pop()
        if name == "batch_step":
            started.extend(given["start"])
            return {"running": [], "sizes": step_sizes(given)}
        return None

    progress = BatchProgress(total=2, max_concurrency=2)
    given = {"batch_id": "batch-1", "progress": progress.to_json()}
    PartStage(batch, "batch-1", given, answer).run()
    assert started == [0, 1]
