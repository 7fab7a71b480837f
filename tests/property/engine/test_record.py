"""Whatever is done to a record, in whatever order: one owner at a time, one answer while it lives."""

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from durable_retry.engine.operations.idempotency import (
    RECORD_MOVES,
    ClaimAnswer,
    ClaimRequest,
    KeyCompletion,
    KeyRecord,
    KeyRecordState,
    claim,
    complete,
    expire,
    state_of,
)
from tests.support.builders import after

TTL_SECONDS = 50


@dataclass(frozen=True)
class Step:
    """One call: what, by whom, how long after the one before."""

    name: str
    owner: str
    fingerprint: str
    pause_seconds: int
    replay: bool
    status: str


steps = st.lists(
    st.builds(
        Step,
        name=st.sampled_from(["claim", "complete", "expire"]),
        owner=st.sampled_from(["one", "two"]),
        fingerprint=st.sampled_from(["f", "g"]),
        pause_seconds=st.integers(0, 30),
        replay=st.booleans(),
        status=st.sampled_from(["succeeded", "dead_lettered"]),
    ),
    max_size=25,
)


def taken(record: KeyRecord | None, step: Step, now: Any) -> tuple[KeyRecord | None, ClaimAnswer | None]:
    """Take one step; the answer is None unless it was a claim."""
    if step.name == "claim":
        request = ClaimRequest(owner=step.owner, fingerprint=step.fingerprint, now=now, replay=step.replay)
        made = claim(record, request)
        return made.record, made.answer
    if step.name == "complete":
        document = {"status": step.status, "by": step.owner}
        completion = KeyCompletion(
            owner=step.owner,
            fingerprint=step.fingerprint,
            document=document,
            now=now,
            ttl_seconds=TTL_SECONDS,
        )
        return complete(record, completion), None
    return expire(record, now=now), None


@given(steps)
def test_a_claim_is_lost_only_by_its_owner(plan: list[Step]) -> None:
    record: KeyRecord | None = None
    now = after(0)
    for step in plan:
        now = after((now - after(0)).total_seconds() + step.pause_seconds)
        before = record
        record, _ = taken(record, step, now)
        if before is None or before.state is not KeyRecordState.IN_PROGRESS or before.owner == step.owner:
            continue
        assert record == before


@given(steps)
def test_a_finished_record_gives_one_answer_until_it_expires_or_is_replayed(plan: list[Step]) -> None:
    record: KeyRecord | None = None
    now = after(0)
    for step in plan:
        now = after((now - after(0)).total_seconds() + step.pause_seconds)
        before = record
        record, answer = taken(record, step, now)
        if before is None or state_of(before, now) is not KeyRecordState.COMPLETED:
            continue
        reopened = (
            step.name == "claim" and step.replay and (before.document or {})["status"] == "dead_lettered"
        )
        assert reopened or record == before
        if answer is not None and not reopened:
            same = step.fingerprint == before.fingerprint
            assert answer is (ClaimAnswer.FINISHED if same else ClaimAnswer.MISMATCH)


@given(steps)
def test_every_change_is_a_legal_move(plan: list[Step]) -> None:
    legal = {(start, end) for (start, _), end in RECORD_MOVES.items()} | {
        (state, state) for state in KeyRecordState
    }
    record: KeyRecord | None = None
    now = after(0)
    for step in plan:
        now = after((now - after(0)).total_seconds() + step.pause_seconds)
        start = state_of(record, now)
        record, _ = taken(record, step, now)
        assert (start, state_of(record, now)) in legal
