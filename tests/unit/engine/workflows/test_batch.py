from durable_retry.engine.workflows.batch import BatchProgress


def test_an_item_that_is_told_twice_to_run_runs_once() -> None:
    progress = BatchProgress(total=3, max_concurrency=2)
    once = progress.with_started([0, 1], {0: "op-a", 1: "op-a"})
    assert once.running == {"op-a": (0, 1)}
    assert once.with_started([1], {1: "op-a"}) == once
