"""Whatever is said to a record, in whatever order: it has the end of the latest run, for its time."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from durable_retry.rules.operations.keys import KeyCompletion, KeyRecord, complete, expire, is_live
from tests.support.builders import after

TTL_SECONDS = 50


@dataclass(frozen=True)
class Step:
    """One call: the end of a run or an expiry, and how long after the one before."""

    run: int | None  # None for an expiry
    pause_seconds: int


steps = st.lists(
    st.builds(Step, run=st.none() | st.integers(1, 4), pause_seconds=st.integers(0, 30)), max_size=25
)


@given(steps)
def test_a_record_has_the_end_of_the_latest_run_until_its_time_is_over(plan: list[Step]) -> None:
    record: KeyRecord | None = None
    seconds = 0
    for step in plan:
        seconds += step.pause_seconds
        now, before = after(seconds), record
        if step.run is None:
            record = expire(before, now=now)
            assert record == (before if is_live(before, now) else None)
            continue
        completion = KeyCompletion(
            run=step.run, fingerprint="f", document={"run": step.run}, now=now, ttl_seconds=TTL_SECONDS
        )
        record = complete(before, completion)
        if before is not None and step.run <= before.run:
            assert record == before
        else:
            assert (record.run, record.document) == (step.run, {"run": step.run})
            assert record.expires_at == after(seconds + TTL_SECONDS)
        assert complete(record, completion) == record
