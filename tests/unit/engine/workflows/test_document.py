"""What people see of batches."""

import pytest

from durable_retry.engine.base.names import OperationState
from durable_retry.engine.workflows.document import counts_of, why_batch_failed

DEAD, CANCELLED = OperationState.DEAD_LETTERED, OperationState.CANCELLED


@pytest.mark.parametrize(
    ("failed", "tolerated", "why"),
    [
        ([DEAD], 0, "1 dead letter of 2 items; none is tolerated"),
        (
            [DEAD, DEAD, CANCELLED],
            2,
            "2 dead letters and 1 cancelled of 4 items; 2 tolerated",
        ),
    ],
)
def test_a_batch_says_why_it_counts_as_failed(failed: list[OperationState], tolerated: int, why: str) -> None:
    assert why_batch_failed(counts_of([OperationState.SUCCEEDED, *failed]), tolerated) == why
