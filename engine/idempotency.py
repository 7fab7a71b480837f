"""Keys, and the record that makes one key mean one operation.

A record is absent, in progress or completed; a completed one expires. Every legal move is in `MOVES`. The
functions take the record as it stands and give the record to store and what to answer.

    claim(record, ...)     absent -> in progress;   a dead owner's claim is taken over
                           and so is that of an earlier run of the same instance, see `_is_earlier_run`
    complete(record, ...)  in progress -> completed, with the status document that answers from then on
    fail(record, ...)      in progress -> absent:   the owner gives up, so the key may be claimed again
    expire(record, ...)    completed -> absent:     when its time is over
"""

import re
from base64 import b32encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final

from engine.instants import from_rfc3339, optional_from_rfc3339, optional_to_rfc3339, to_rfc3339
from engine.problem import InvalidInputError, Problem
from engine.vocabulary import OperationState

_OPERATION_ID: Final = re.compile(r"op-[a-z0-9-]+")
_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
_SF_STRING: Final = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')


def operation_id_for(scope: str, key: str) -> str:
    """Derive an operation's id: the same for the same scope and key on every machine; 35 URL-safe characters.

    Args:
        scope: Sets keys apart that are equal by accident, e.g. explicit keys from ids that a source made up.
        key: The caller's.
    """
    digest = sha256(f"{len(scope)}:{scope}{key}".encode("utf-8", "surrogatepass")).digest()
    return "op-" + b32encode(digest[:20]).decode().lower()


def is_operation_id(text: str) -> bool:
    """Tell whether a text has the form of an operation's id, which no other thing in the task hub has."""
    return _OPERATION_ID.fullmatch(text) is not None


def parse_key(header: str) -> str:
    """Read an `Idempotency-Key` header: an RFC 8941 string (`"abc"`, escapes undone) or bare (`abc`).

    Raises:
        InvalidInputError: if it is neither, or not 1 to 255 visible ASCII characters.
    """
    text = header.strip(" \t")
    quoted = _SF_STRING.fullmatch(text)
    if text.startswith('"') and quoted is None:
        raise InvalidInputError(
            [Problem("", "Idempotency-Key is not a quoted string (RFC 8941 section 3.3.3)")]
        )
    key = text if quoted is None else re.sub(r"\\(.)", r"\1", quoted[1])
    if not _KEY.fullmatch(key):
        raise InvalidInputError([Problem("", "Idempotency-Key must be 1 to 255 visible ASCII characters")])
    return key


class RecordState(StrEnum):
    """Where a record stands."""

    ABSENT = "absent"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


class Move(StrEnum):
    """What can happen to a record."""

    CLAIM = "claim"
    TAKE_OVER = "take_over"
    COMPLETE = "complete"
    FAIL = "fail"
    EXPIRE = "expire"
    REOPEN = "reopen"


MOVES: Final[Mapping[tuple[RecordState, Move], RecordState]] = {
    (RecordState.ABSENT, Move.CLAIM): RecordState.IN_PROGRESS,
    (RecordState.IN_PROGRESS, Move.TAKE_OVER): RecordState.IN_PROGRESS,
    (RecordState.IN_PROGRESS, Move.COMPLETE): RecordState.COMPLETED,
    (RecordState.ABSENT, Move.COMPLETE): RecordState.COMPLETED,
    (RecordState.IN_PROGRESS, Move.FAIL): RecordState.ABSENT,
    (RecordState.COMPLETED, Move.EXPIRE): RecordState.ABSENT,
    (RecordState.COMPLETED, Move.REOPEN): RecordState.IN_PROGRESS,
}
"""Every legal move and its end. An absent record is completed when it was lost and the work was not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The record of one key that is in progress or completed; an absent one is None.

    Attributes:
        state: In progress or completed.
        owner: Who works on it, or did: `OperationInput.run_id`, the instance and, behind a dot, its run.
        fingerprint: Of the request that the key stands for.
        claimed_at: When the present owner claimed it.
        lease_until: After this the owner counts as dead; None means that it never does.
        expires_at: When a completed record goes; None while it is in progress.
        document: The status document of a completed operation; None while it is in progress.
    """

    state: RecordState
    owner: str
    fingerprint: str
    claimed_at: datetime
    lease_until: datetime | None = None
    expires_at: datetime | None = None
    document: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Give the JSON form."""
        return {
            "state": self.state.value,
            "owner": self.owner,
            "fingerprint": self.fingerprint,
            "claimed_at": to_rfc3339(self.claimed_at),
            "lease_until": optional_to_rfc3339(self.lease_until),
            "expires_at": optional_to_rfc3339(self.expires_at),
            "document": None if self.document is None else dict(self.document),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Record":
        """Read what `to_json` wrote."""
        return cls(
            state=RecordState(data["state"]),
            owner=data["owner"],
            fingerprint=data["fingerprint"],
            claimed_at=from_rfc3339(data["claimed_at"]),
            lease_until=optional_from_rfc3339(data["lease_until"]),
            expires_at=optional_from_rfc3339(data["expires_at"]),
            document=data["document"],
        )


class ClaimAnswer(StrEnum):
    """What a claim met."""

    CLAIMED = "claimed"
    TAKEN_OVER = "taken_over"
    IN_PROGRESS = "in_progress"
    FINISHED = "finished"
    MISMATCH = "mismatch"


@dataclass(frozen=True, slots=True)
class Claim:
    """The record to store, and the answer to give.

    `claimed` and `taken_over`: the caller owns the key now and may go on; a second claim by the same owner is
    `claimed` again. `in_progress`: somebody else works on it. `finished`: `record.document` is the answer.
    `mismatch`: the key stands for another request.
    """

    record: Record
    answer: ClaimAnswer

    @property
    def is_owner(self) -> bool:
        """Whether the caller may go on."""
        return self.answer in {ClaimAnswer.CLAIMED, ClaimAnswer.TAKEN_OVER}


def state_of(record: Record | None, now: datetime) -> RecordState:
    """Tell where a record stands now; one whose time is over counts as absent though it is still stored."""
    if record is None or _is_expired(record, now):
        return RecordState.ABSENT
    return record.state


def claim(
    record: Record | None,
    *,
    owner: str,
    fingerprint: str,
    now: datetime,
    lease_seconds: float | None = None,
    replay: bool = False,
) -> Claim:
    """Claim a key, before any side effect.

    Args:
        record: As it stands; None when absent.
        owner: Who claims.
        fingerprint: Of the request; compared unless `replay`.
        now: The present.
        lease_seconds: After this the claim may be taken over; None means never.
        replay: Whether a person replays a dead letter: its completed record is opened again, once for each
            owner, and an edited request may stand under the same key.
    """
    fresh = Record(
        state=RecordState.IN_PROGRESS,
        owner=owner,
        fingerprint=fingerprint,
        claimed_at=now,
        lease_until=None if lease_seconds is None else now + timedelta(seconds=lease_seconds),
    )
    state = state_of(record, now)
    if record is None or state is RecordState.ABSENT:
        return Claim(_moved(state, Move.CLAIM, fresh), ClaimAnswer.CLAIMED)
    if replay and _is_dead_lettered(record) and record.owner != owner:
        return Claim(_moved(state, Move.REOPEN, fresh), ClaimAnswer.CLAIMED)
    if _is_earlier_run(record, owner) and (replay or record.fingerprint == fingerprint):
        return Claim(_moved(state, Move.TAKE_OVER, fresh), ClaimAnswer.TAKEN_OVER)
    if record.fingerprint != fingerprint:
        return Claim(record, ClaimAnswer.MISMATCH)
    if state is RecordState.COMPLETED:
        return Claim(record, ClaimAnswer.FINISHED)
    return _contended(record, fresh, now)


def _contended(record: Record, fresh: Record, now: datetime) -> Claim:
    """Settle a claim on a key that is in progress: by its own owner, after a dead one, or too late."""
    if record.owner == fresh.owner:
        return Claim(_moved(record.state, Move.TAKE_OVER, fresh), ClaimAnswer.CLAIMED)
    if record.lease_until is not None and record.lease_until <= now:
        return Claim(_moved(record.state, Move.TAKE_OVER, fresh), ClaimAnswer.TAKEN_OVER)
    return Claim(record, ClaimAnswer.IN_PROGRESS)


def complete(
    record: Record | None,
    *,
    owner: str,
    fingerprint: str,
    document: Mapping[str, Any],
    now: datetime,
    ttl_seconds: float,
) -> Record:
    """Keep the final status document. Not by an owner whose claim was taken over, and not twice.

    Args:
        record: As it stands; None when absent.
        owner: Who completes.
        fingerprint: Of the request; used when the record was lost.
        document: The status document.
        now: The present.
        ttl_seconds: How long it is kept.
    """
    state = state_of(record, now)
    live = None if state is RecordState.ABSENT else record
    if live is not None and (live.owner != owner or state is RecordState.COMPLETED):
        return live
    finished = Record(
        state=RecordState.COMPLETED,
        owner=owner,
        fingerprint=fingerprint if live is None else live.fingerprint,
        claimed_at=now if live is None else live.claimed_at,
        expires_at=now + timedelta(seconds=ttl_seconds),
        document=dict(document),
    )
    return _moved(state, Move.COMPLETE, finished)


def fail(record: Record | None, *, owner: str) -> Record | None:
    """Let go of a claim without an outcome: nothing took effect, and the key may be claimed again."""
    if record is None or record.owner != owner or record.state is not RecordState.IN_PROGRESS:
        return record
    return None


def expire(record: Record | None, *, now: datetime) -> Record | None:
    """Drop a completed record whose time is over; a signal that comes too early does nothing."""
    return None if record is None or _is_expired(record, now) else record


def _moved(state: RecordState, move: Move, after: Record) -> Record:
    """Hold every change to the table."""
    if MOVES.get((state, move)) is not after.state:
        raise AssertionError(f"a record cannot {move} from {state} to {after.state}")
    return after


def _is_expired(record: Record, now: datetime) -> bool:
    return record.expires_at is not None and record.expires_at <= now


def _is_earlier_run(record: Record, owner: str) -> bool:
    """Tell whether a claim is that of another run of the claimer's instance.

    An instance makes one run after the other, so that one is over. Its `complete` is still on the way, and
    must not speak for this run when it comes: by then its sender is no owner any more.
    """
    if record.state is not RecordState.IN_PROGRESS or record.owner == owner:
        return False
    return record.owner.partition(".")[0] == owner.partition(".")[0]


def _is_dead_lettered(record: Record) -> bool:
    return (record.document or {}).get("status") == OperationState.DEAD_LETTERED
