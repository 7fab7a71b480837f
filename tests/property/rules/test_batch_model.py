"""A batch's progress against a model: every item is started once, never too many at a time, and all end."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from durable_retry.features.workflows.rules.document import batch_state_of, counts_of
from durable_retry.features.workflows.rules.shapes import BatchProgress, BatchState, ItemState


@st.composite
def batches(draw: st.DrawFn) -> tuple[int, int, list[str | None]]:
    """Total, concurrency, and each item's operation: None when it ends at once; some share one."""
    total = draw(st.integers(1, 40))
    names = st.one_of(st.none(), st.sampled_from([f"op-{number}" for number in range(60)]))
    items = draw(st.lists(names, min_size=total, max_size=total))
    return total, draw(st.integers(1, 10)), items


@given(batch=batches(), rng=st.randoms(use_true_random=False), crashing=st.booleans())
def test_every_item_is_started_once_and_no_more_run_than_allowed(
    batch: tuple[int, int, list[str | None]], rng: Random, *, crashing: bool
) -> None:
    total, concurrency, items = batch
    progress = BatchProgress(total=total, max_concurrency=concurrency)
    started: list[int] = []
    turns = 0
    while not progress.is_over:
        turns += 1
        assert turns <= 4 * total + 4
        if crashing:
            progress = BatchProgress.from_json(progress.to_json())
        start = progress.startable
        started += start
        running = {index: name for index in start if (name := items[index]) is not None}
        progress = progress.with_started(start, running)
        assert len(progress.running) <= concurrency
        if progress.running:
            ended = rng.sample(sorted(progress.running), rng.randint(1, len(progress.running)))
            # Reports come twice, and of operations that nobody waits for.
            progress = progress.without([*ended, *ended, "op-unknown"])
    assert started == list(range(total))


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5), st.integers(0, 5), st.integers(0, 12))
def test_a_verdict_comes_last_and_counts_what_did_not_succeed(
    succeeded: int, dead: int, cancelled: int, running: int, tolerated: int
) -> None:
    statuses = (
        ["succeeded"] * succeeded
        + ["dead_lettered"] * dead
        + ["cancelled"] * cancelled
        + ["running"] * running
    )
    verdict = batch_state_of(counts_of(map(ItemState, statuses)), tolerated)
    if running:
        assert verdict is BatchState.RUNNING
    else:
        assert verdict is (BatchState.SUCCEEDED if dead + cancelled <= tolerated else BatchState.FAILED)
