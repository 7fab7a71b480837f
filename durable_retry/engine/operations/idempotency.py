"""The record that makes one key mean one operation.

A record is absent, in progress or completed; a completed one expires. `RECORD_MOVES` lists every legal move.
The functions take the stored record and return the record to store, with the answer to give.

    claim(record, ...)     absent -> in progress; the claim of an earlier run of the same instance is taken
                           over, see `_is_earlier_run`
    complete(record, ...)  in progress -> completed, with the status document that answers from then on
    expire(record, ...)    completed -> absent, when its time is over, see `removes_itself`
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from durable_retry.engine.base.json_forms import JsonShape
from durable_retry.engine.base.names import OperationState
from durable_retry.engine.base.trace_context import TraceContext


class KeyRecordState(StrEnum):
    """The state of a record."""

    ABSENT = "absent"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


class KeyRecordMove(StrEnum):
    """What can happen to a record."""

    CLAIM = "claim"
    TAKE_OVER = "take_over"
    COMPLETE = "complete"
    EXPIRE = "expire"
    REOPEN = "reopen"


RECORD_MOVES: Final[Mapping[tuple[KeyRecordState, KeyRecordMove], KeyRecordState]] = {
    (KeyRecordState.ABSENT, KeyRecordMove.CLAIM): KeyRecordState.IN_PROGRESS,
    (KeyRecordState.IN_PROGRESS, KeyRecordMove.TAKE_OVER): KeyRecordState.IN_PROGRESS,
    (KeyRecordState.IN_PROGRESS, KeyRecordMove.COMPLETE): KeyRecordState.COMPLETED,
    (KeyRecordState.ABSENT, KeyRecordMove.COMPLETE): KeyRecordState.COMPLETED,
    (KeyRecordState.COMPLETED, KeyRecordMove.EXPIRE): KeyRecordState.ABSENT,
    (KeyRecordState.COMPLETED, KeyRecordMove.REOPEN): KeyRecordState.IN_PROGRESS,
    (KeyRecordState.COMPLETED, KeyRecordMove.COMPLETE): KeyRecordState.COMPLETED,
}
"""Every legal move and its end. An absent record is completed when it was lost and the work was not, a
completed one when the claim of a later run was answered and its state was lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord(JsonShape):
    """The record of one key that is in progress or completed; an absent one is None."""

    state: KeyRecordState  # in progress or completed
    owner: str  # who works on it, or did: `OperationInput.owner`
    fingerprint: str  # the fingerprint of the request that the key stands for
    claimed_at: datetime  # when the present owner claimed it
    expires_at: datetime | None = None  # when a completed record goes; None while it is in progress
    # The status document of a completed operation; None while it is in progress.
    document: Mapping[str, Any] | None = None
    run: int = 1  # the fencing token of the present claim, see `_run_after`; 1 in records of older versions
    # When the start that holds the claim was accepted, which distinguishes the starts of one owner; None in
    # records of older versions.
    accepted_at: datetime | None = None
    # When another start of the instance first claimed the key in vain; None while none did.
    contended_at: datetime | None = None


LEFT_TO_RETENTION: Final = timedelta(hours=1)
"""A record that lives for less removes itself when its time is over; see `removes_itself`."""

COMPLETION_GRACE: Final = timedelta(seconds=30)
"""How long a claim waits for the completion of an earlier start of the same owner."""


class ClaimAnswer(StrEnum):
    """The result of a claim."""

    CLAIMED = "claimed"
    TAKEN_OVER = "taken_over"
    IN_PROGRESS = "in_progress"
    FINISHED = "finished"
    MISMATCH = "mismatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest(JsonShape):
    """What an orchestration asks of the record of its key, before any side effect.

    With `replay` a person replays a dead letter: its completed record is opened again, once for each owner,
    and an edited request may stand under the same key; else the fingerprints are compared.
    """

    owner: str  # `OperationInput.owner`
    fingerprint: str
    now: datetime
    accepted_at: datetime | None = None  # when the start was accepted; None from older versions
    replay: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimReply(JsonShape):
    """What the record answers to a claim."""

    answer: ClaimAnswer
    run: int = 1  # the run number of the claim; histories of older versions have none
    document: Mapping[str, Any] | None = None  # the status document of a finished operation, else None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCompletion(JsonShape):
    """What completes the record of a key when its operation has ended."""

    owner: str  # as in the claim
    run: int | None = None  # the run number of the claim; None where it is not known, and the owner counts
    fingerprint: str  # used when the record was lost
    document: Mapping[str, Any]  # the final status document
    now: datetime
    ttl_seconds: float  # for how long the key answers with the document
    trace: TraceContext | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """The record to store, and the answer to give.

    `claimed` and `taken_over`: the caller owns the key now and may go on; a second claim by the same owner is
    `claimed` again. `in_progress`: somebody else works on it. `finished`: `record.document` is the answer.
    `mismatch`: the key stands for another request.
    """

    record: KeyRecord
    answer: ClaimAnswer


def state_of(record: KeyRecord | None, now: datetime) -> KeyRecordState:
    """Return the state now; an expired record counts as absent although it is still stored."""
    if record is None or _is_expired(record, now):
        return KeyRecordState.ABSENT
    return record.state


def claim(record: KeyRecord | None, request: ClaimRequest) -> Claim:
    """Claim a key.

    Every claim that changes the owner or the start gives a higher run number. The same start that claims
    again, because its turn ran twice, keeps its number; also when the state of its first claim was lost.
    """
    now, accepted_at, owner, replay = request.now, request.accepted_at, request.owner, request.replay
    fresh = KeyRecord(
        state=KeyRecordState.IN_PROGRESS,
        owner=owner,
        fingerprint=request.fingerprint,
        claimed_at=now,
        run=_run_after(record, accepted_at or now),
        accepted_at=accepted_at,
    )
    # Whoever accepted the start saw the record expired; this clock may be behind that one.
    state = state_of(record, max(now, accepted_at or now))
    if record is None or state is KeyRecordState.ABSENT:
        return Claim(_checked_move(state, KeyRecordMove.CLAIM, fresh), ClaimAnswer.CLAIMED)
    taken: Claim | None = None
    if replay and _is_dead_lettered(record) and record.owner != owner:
        taken = Claim(_checked_move(state, KeyRecordMove.REOPEN, fresh), ClaimAnswer.CLAIMED)
    elif _is_earlier_run(record, owner) and (replay or record.fingerprint == request.fingerprint):
        taken = Claim(_checked_move(state, KeyRecordMove.TAKE_OVER, fresh), ClaimAnswer.TAKEN_OVER)
    if taken is not None:
        return _after_grace(record, taken, now) if _is_older(accepted_at, record) else taken
    if record.fingerprint != request.fingerprint:
        return Claim(record, ClaimAnswer.MISMATCH)
    if state is KeyRecordState.COMPLETED:
        return Claim(record, ClaimAnswer.FINISHED)
    return _claim_in_progress(record, fresh, now)


def _claim_in_progress(record: KeyRecord, fresh: KeyRecord, now: datetime) -> Claim:
    """Decide a claim on a key that is in progress: by its own owner, or by another one, which has to wait."""
    if record.owner == fresh.owner:
        if fresh.accepted_at is None or record.accepted_at in {None, fresh.accepted_at}:
            same = replace(fresh, run=record.run, accepted_at=fresh.accepted_at or record.accepted_at)
            return Claim(_checked_move(record.state, KeyRecordMove.TAKE_OVER, same), ClaimAnswer.CLAIMED)
        taken = Claim(_checked_move(record.state, KeyRecordMove.TAKE_OVER, fresh), ClaimAnswer.TAKEN_OVER)
        return _after_grace(record, taken, now)
    return Claim(record, ClaimAnswer.IN_PROGRESS)


def _after_grace(record: KeyRecord, taken: Claim, now: datetime) -> Claim:
    """Return the takeover once a start has claimed the key for `COMPLETION_GRACE`, a refusal until then."""
    since = record.contended_at or now
    if now - since < COMPLETION_GRACE:
        return Claim(replace(record, contended_at=since), ClaimAnswer.IN_PROGRESS)
    return taken


def _is_older(accepted_at: datetime | None, record: KeyRecord) -> bool:
    """Whether a start was accepted before the one that holds or held the claim.

    Mostly it is over, and its claim was delivered again: it must not take the key from the run after it,
    since nobody would complete it. Or the clock that accepted it is behind; then it claims again.
    """
    if accepted_at is None or record.accepted_at is None:
        return False
    return accepted_at < record.accepted_at


def complete(record: KeyRecord | None, completion: KeyCompletion) -> KeyRecord:
    """Keep the final status document. Not by a run whose claim was taken over, and not twice."""
    now, owner, run = completion.now, completion.owner, completion.run
    state = state_of(record, now)
    live = None if state is KeyRecordState.ABSENT else record
    if live is not None and live.owner != owner and (run or 0) > live.run:
        # This run's claim was answered, but its state was lost. The run before it is over in any case.
        live = None
    # A higher number of the same owner is no mistake: an older version of the entity drops it when it writes.
    is_over = live is not None and (live.owner != owner or (run or live.run) < live.run)
    if live is not None and (is_over or state is KeyRecordState.COMPLETED):
        return live
    finished = KeyRecord(
        state=KeyRecordState.COMPLETED,
        owner=owner,
        fingerprint=completion.fingerprint if live is None else live.fingerprint,
        claimed_at=now if live is None else live.claimed_at,
        expires_at=now + timedelta(seconds=completion.ttl_seconds),
        document=dict(completion.document),
        run=run or (1 if live is None else live.run),
        accepted_at=None if live is None else live.accepted_at,
    )
    return _checked_move(state, KeyRecordMove.COMPLETE, finished)


def expire(record: KeyRecord | None, *, now: datetime) -> KeyRecord | None:
    """Drop an expired record; a signal that arrives too early changes nothing."""
    return None if record is None or _is_expired(record, now) else record


def removes_itself(record: KeyRecord, now: datetime, history_for: timedelta | None) -> bool:
    """Whether a record that was completed at `now` schedules its own expiry, by a message to itself.

    Retention removes most records together with their operation's history, for one read; a message costs six
    requests. The message is needed where histories are kept for ever, where the record expires sooner than
    retention would come, and where the operation ended after retention was due to look at it.
    """
    if history_for is None or record.expires_at is None:
        return True
    is_old = now - (record.accepted_at or record.claimed_at) > history_for - LEFT_TO_RETENTION
    return is_old or record.expires_at - now < LEFT_TO_RETENTION


def _checked_move(state: KeyRecordState, move: KeyRecordMove, after: KeyRecord) -> KeyRecord:
    if RECORD_MOVES.get((state, move)) is not after.state:
        raise AssertionError(f"a record cannot {move} from {state} to {after.state}")
    return after


def _run_after(record: KeyRecord | None, accepted_at: datetime) -> int:
    """Return the number of the next run: milliseconds since 1970, above that of the record's run.

    A clock, not a counter: the number must grow even after an expired record was deleted. The record is kept
    for `ttl_seconds` after the end, longer than the clocks of the machines differ. The instant is that of the
    start, so a claim whose state was lost gets the same number when it is repeated.
    """
    last = 0 if record is None else record.run
    return max(last + 1, int(accepted_at.timestamp() * 1000))


def _is_expired(record: KeyRecord, now: datetime) -> bool:
    return record.expires_at is not None and record.expires_at <= now


def _is_earlier_run(record: KeyRecord, owner: str) -> bool:
    """Return whether a claim is that of another run of the claimer's instance.

    An instance makes one run after the other, so the earlier run is over. Its `complete` may still arrive; it
    is ignored then, because its sender is no longer the owner.
    """
    if record.state is not KeyRecordState.IN_PROGRESS or record.owner == owner:
        return False
    return record.owner.partition(".")[0] == owner.partition(".")[0]


def _is_dead_lettered(record: KeyRecord) -> bool:
    return (record.document or {}).get("status") == OperationState.DEAD_LETTERED
