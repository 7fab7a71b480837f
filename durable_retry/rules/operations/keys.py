"""Keys: how operations are named, and what makes one key mean one operation.

Two submissions under one key are compared by their fingerprint, a hash of the request or of chosen parts of
it. It does not depend on the order of keys or the form of a number: 5 and 5.0 are one JSON number.

The orchestration instance of an operation is the record of its key, for as long as its history is kept. Where
the key must answer for longer, an entity keeps a record of a caller's key, which answers then.

    complete(record, ...)   the end of a run --> the record that answers without the history
    expire(record, ...)     none, when its time is over; see `removes_itself`

Where starts are not atomic, two starts of a key can both succeed. Each run has a number, made of the instant
at which it was accepted. Before a run does what must be done once, it writes a marker with its number under
the operation's name. So each of the two finds the other's marker, see `Life`.
"""

import json
import re
from base64 import b32encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote

from durable_retry.base.documents import written_digits
from durable_retry.base.json_forms import JsonShape, from_ms
from durable_retry.base.validation import InvalidInputError, Problem, pointed_at

MAX_KEY_CHARS: Final = 255
_VISIBLE: Final = "".join(chr(code) for code in range(0x21, 0x7F))
_KEPT_IN_KEYS: Final = _VISIBLE.replace("%", "")
_KEPT_IN_ENVELOPE_NAMES: Final = _KEPT_IN_KEYS.replace("#", "")
EXPLICIT_SCOPE: Final = "key:"
"""The scope of keys that callers choose: shared by all sources."""
ENVELOPE_SCOPE: Final = "event:"
"""The scope of envelopes: shared by all sources."""
FIELDS_SCOPE: Final = "fields:"
_OPERATION_ID: Final = re.compile(r"op-[a-z0-9-]+")


@dataclass(frozen=True, slots=True)
class EnvelopeName:
    """The globally unique name of an envelope."""

    source: str  # the sender, a URI reference; the topic of an Event Grid event
    id: str  # unique for its source


@dataclass(frozen=True, slots=True)
class ScopedKey:
    """A key and its scope; `operation_id_for` makes the operation's id of them."""

    scope: str
    key: str


def canonical_json(value: Any) -> str:
    """Return JSON in one form: keys sorted, no white space, ASCII, whole floats as whole numbers."""
    text = _sorted_text(value)
    if _END_OF_WHOLE.search(text) is None:
        return text
    # JSON has one kind of number, so 5 and 5.0 are the same request. Numbers are outside of quotes. The text
    # has no control characters, so these can replace the escapes inside of quotes.
    parts = text.replace(r"\\", "\1").replace(r"\"", "\2").split('"')
    parts[::2] = _MINUS_ZERO.sub("0", _END_OF_WHOLE.sub("", "\n".join(parts[::2]))).split("\n")
    return '"'.join(parts).replace("\2", r"\"").replace("\1", r"\\")


_END_OF_WHOLE: Final = re.compile(r"\.0(?=[,\]}]|$)")
"""A float is written so below 10**16, where it stands for one whole number."""
_MINUS_ZERO: Final = re.compile(r"-0(?=[,\]}]|$)")


def _sorted_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=written_digits)


def fingerprint(target: str, request: Any, pointers: Iterable[str] = ()) -> str:
    """Hash a request, or the parts of it that the pointers name.

    Args:
        target: The destination, e.g. `dependency payments` or `handler ship-order`; always part of the hash.
        request: The JSON form of the request, or a handler's input.
        pointers: JSON pointers (RFC 6901) into it; empty means all of it. A missing part differs from null.

    Returns:
        64 hexadecimal digits.
    """
    chosen = list(pointers)
    compared = (
        [[pointer, *pointed_at(request, pointer)] for pointer in sorted(chosen)]
        if chosen
        else [["", request]]
    )
    return sha256(canonical_json([target, compared]).encode()).hexdigest()


def envelope_key(envelope: EnvelopeName) -> ScopedKey:
    """Return the key of an envelope: `source` and `id`, joined by `#`, which is escaped in both."""
    parts = (
        quote(part, safe=_KEPT_IN_ENVELOPE_NAMES, errors="surrogatepass")
        for part in (envelope.source, envelope.id)
    )
    return ScopedKey(ENVELOPE_SCOPE, key_or_hash("#".join(parts)))


def source_scope(source: str, place: str) -> str:
    """Return the scope of a source's ids: they are unique in one place of it, such as a queue."""
    return f"source:{source}/{place}"


def source_name(source: str, place: str, native_id: str) -> ScopedKey:
    """Return the key of a message, made of the id that its source gave it."""
    return ScopedKey(source_scope(source, place), visible(native_id))


def fields_name(payload: Any, pointers: Iterable[str]) -> ScopedKey:
    """Return a key made of some fields of a payload, whatever the order of keys and the form of numbers.

    Raises:
        InvalidInputError: A field is missing: all payloads without it would be one operation.
    """
    # Sorted and unique: the order in the settings must not change the key.
    values = [(pointer, pointed_at(payload, pointer)) for pointer in sorted(set(pointers))]
    missing = [
        Problem(pointer, "is missing, and the key is made of it") for pointer, value in values if not value
    ]
    if missing:
        raise InvalidInputError(missing)
    digest = sha256(canonical_json([[pointer, value[0]] for pointer, value in values]).encode()).hexdigest()
    return ScopedKey(FIELDS_SCOPE, f"fields-{digest[:40]}")


def visible(text: str) -> str:
    """Return a text as a key: what is not visible ASCII is percent-encoded, what is long is hashed."""
    return key_or_hash(quote(text, safe=_KEPT_IN_KEYS, errors="surrogatepass"))


def key_or_hash(key: str) -> str:
    """Return a text, or its hash when it is longer than a key may be."""
    if 0 < len(key) <= MAX_KEY_CHARS:
        return key
    return f"sha256-{sha256(key.encode()).hexdigest()}"


def hash_of_key(key: str) -> str:
    """Return 40 hexadecimal digits for an entity's key: an order key or limit key may have any characters."""
    return sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def operation_id_for(scope: str, key: str) -> str:
    """Return an operation's id: the same for the same scope and key on every machine; 35 URL-safe characters.

    The scope separates keys that are equal by accident, such as callers' keys and the ids of a source.
    """
    digest = sha256(f"{len(scope)}:{scope}{key}".encode("utf-8", "surrogatepass")).digest()
    return "op-" + b32encode(digest[:20]).decode().lower()


def is_operation_id(text: str) -> bool:
    """Return whether a text has the form of an operation id; no other instance id has it."""
    return _OPERATION_ID.fullmatch(text) is not None


SAME_LIFE: Final = timedelta(minutes=10)
"""Two starts of one key that were accepted within this, and within the time for which the key answers, are of
one life. It is far longer than clocks differ, and than a start takes."""


def apart_ms(ttl_seconds: float) -> int:
    """Return the least number of milliseconds between the starts of two lives of a key."""
    return int(1000 * min(SAME_LIFE.total_seconds(), ttl_seconds))


class Met(Enum):
    SAME = auto()
    """Its own marker, or that of another start of the same life: what that one did is done."""
    EARLIER = auto()
    """The marker of a life that is over, which counts no more."""
    LATER = auto()
    """The marker of a later life, so this run is over."""


class OvertakenError(Exception):
    """A later run of the operation has begun, so that this one is over; the message is for a person."""

    def __init__(self, by: int, run: int) -> None:
        super().__init__(f"run {by} of this key has begun; run {run} is over")


@dataclass(frozen=True, slots=True, kw_only=True)
class Life(JsonShape):
    """One run of an operation, to be compared with the runs whose markers it finds."""

    owner: str  # `OperationInput.owner`: a replay is a life of its own
    run: int  # its number, see `operation.run_number`
    apart_ms: int  # see `apart_ms`

    def meet(self, run: int, owner: str | None = None) -> Met:
        """Return what the marker of the run of a number means to this one; `owner` None is the same owner."""
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
        return self.now + timedelta(seconds=self.ttl_seconds)


LEFT_TO_RETENTION: Final = timedelta(hours=1)
"""A record that lives for less removes itself when its time is over; see `removes_itself`."""


def is_live(record: KeyRecord | None, now: datetime) -> bool:
    """Whether a record answers: there is one, and its time is not over."""
    return record is not None and now < record.expires_at


def complete(record: KeyRecord | None, completion: KeyCompletion) -> KeyRecord:
    """Return the record with the end of a run; a record of that run or a later one stays as it is."""
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
