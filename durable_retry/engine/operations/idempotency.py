"""What makes one key mean one operation: the lives of a key, and the record of an end.

The orchestration instance of an operation is the record of its key, for as long as its history is kept. When
that goes, the record of a caller's key answers, which an entity keeps from the end of the operation on.

    complete(record, ...)   the end of a run --> the record that answers from then on
    expire(record, ...)     none, when its time is over; see `removes_itself`

Two starts of a key can both be let through where starts are not atomic. Each run has a number, made of the
instant at which it was accepted, and what it must do once it writes down first, under the name of the
operation and with its number. So the two meet what the other has written, see `Life`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any, Final

from durable_retry.engine.base.instants import from_ms
from durable_retry.engine.base.json_forms import JsonShape

SAME_LIFE: Final = timedelta(minutes=10)
"""Two starts of one key that were accepted within so long of each other, and within the time for which the
key answers, are of one life: far longer than clocks differ, and than a start is under way."""


def apart_ms(ttl_seconds: float) -> int:
    """Return how many milliseconds the starts of two lives of a key are apart at least."""
    return int(1000 * min(SAME_LIFE.total_seconds(), ttl_seconds))


class Met(Enum):
    """What a run has met."""

    SAME = auto()
    """Its own, or that of another start of the same life: what is done is done."""
    EARLIER = auto()
    """That of a life that is over: it counts no more."""
    LATER = auto()
    """That of a later life, so that this run is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life(JsonShape):
    """One run of an operation, as far as it meets the traces of others."""

    owner: str  # `OperationInput.owner`: a replay is another one's life
    run: int  # its number, see `operation.run_number`
    apart_ms: int  # see `apart_ms`

    def meet(self, run: int, owner: str | None = None) -> Met:
        """Return what the trace of a run of this number is to this one; `owner` None is the same owner."""
        if owner in {None, self.owner} and abs(run - self.run) < self.apart_ms:
            return Met.SAME
        return Met.EARLIER if run < self.run else Met.LATER


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord(JsonShape):
    """The record of a key whose operation has ended."""

    run: int  # the number of the run that ended
    fingerprint: str  # of the request that the key stands for; "" where that is not known
    expires_at: datetime
    document: Mapping[str, Any]  # the last status document

    def stands_for(self, fingerprint: str) -> bool:
        """Whether a request of this fingerprint is the one that the key stands for, as far as is known."""
        return self.fingerprint in {"", fingerprint}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCompletion(JsonShape):
    """The end of a run, from which the record of its key is made."""

    run: int
    fingerprint: str
    document: Mapping[str, Any]  # the last status document
    now: datetime
    ttl_seconds: float  # for how long the key answers with the document

    @property
    def expires_at(self) -> datetime:
        """When the key answers no more."""
        return self.now + timedelta(seconds=self.ttl_seconds)


LEFT_TO_RETENTION: Final = timedelta(hours=1)
"""A record that lives for less removes itself when its time is over; see `removes_itself`."""


def is_live(record: KeyRecord | None, now: datetime) -> bool:
    """Whether a record answers: there is one, and its time is not over."""
    return record is not None and now < record.expires_at


def complete(record: KeyRecord | None, completion: KeyCompletion) -> KeyRecord:
    """Return the record with the end of a run; the one that is there for that run or a later one stays."""
    if record is not None and completion.run <= record.run:
        return record
    return KeyRecord(
        run=completion.run,
        fingerprint=completion.fingerprint,
        expires_at=completion.expires_at,
        document=dict(completion.document),
    )


def expire(record: KeyRecord | None, *, now: datetime) -> KeyRecord | None:
    """Drop an expired record; a signal that arrives too early changes nothing."""
    return record if is_live(record, now) else None


def removes_itself(record: KeyRecord, now: datetime, history_for: timedelta | None) -> bool:
    """Whether a record that was completed at `now` schedules its own expiry, by a message to itself.

    Retention removes most records together with their operation's history, for one read; a message costs six
    requests. The message is needed where histories are kept for ever, where the record expires sooner than
    retention would come, and where the operation ended after retention was due to look at it.
    """
    if history_for is None:
        return True
    is_old = now - from_ms(record.run) > history_for - LEFT_TO_RETENTION
    return is_old or record.expires_at - now < LEFT_TO_RETENTION
