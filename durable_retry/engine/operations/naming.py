"""Scopes and keys of operations.

A scope separates keys that are equal by accident. There are four kinds, each the same in every source:

    key:TENANT        keys that callers choose: the body's `key`, the header Idempotency-Key
    event:TENANT      events: `source` and `id` of an envelope
    fields:           keys made of named fields of the payload
    source:NAME/...   ids of a source: a message id, a partition with a sequence number
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote

from durable_retry.engine.base.json_pointer import pointed_at
from durable_retry.engine.base.validation import InvalidInputError, Problem
from durable_retry.engine.operations.fingerprint import canonical_json

MAX_KEY_CHARS: Final = 255

_VISIBLE: Final = "".join(chr(code) for code in range(0x21, 0x7F))
_KEPT_IN_KEYS: Final = _VISIBLE.replace("%", "")
_KEPT_IN_EVENT_NAMES: Final = _KEPT_IN_KEYS.replace("#", "")

FIELDS_SCOPE: Final = "fields:"


@dataclass(frozen=True, slots=True)
class ScopedKey:
    """A key and its scope; `idempotency.operation_id_for` makes the operation's id of them."""

    scope: str
    key: str


@dataclass(frozen=True, slots=True)
class EventName:
    """The globally unique name of an event.

    Attributes:
        source: The sender, a URI reference; the topic of an Event Grid event.
        id: Unique for its source.
    """

    source: str
    id: str


def explicit_scope(tenant: str) -> str:
    """Return the scope of keys that callers choose: shared by all sources, one per tenant."""
    return f"key:{tenant}"


def event_scope(tenant: str) -> str:
    """Return the scope of events: shared by all sources, one per tenant."""
    return f"event:{tenant}"


def event_name(event: EventName, tenant: str = "") -> ScopedKey:
    """Return the key of an event: `source` and `id`, joined by `#`, which is escaped in both."""
    parts = (
        quote(part, safe=_KEPT_IN_EVENT_NAMES, errors="surrogatepass") for part in (event.source, event.id)
    )
    return ScopedKey(event_scope(tenant), _short("#".join(parts)))


def source_name(source: str, place: str, native_id: str) -> ScopedKey:
    """Return the key of a message, made of the id that its source gave it.

    Args:
        source: `queue`, `kafka`, ...
        place: The scope in which the id is unique, such as the queue's name.
        native_id: Any text.
    """
    return ScopedKey(f"source:{source}/{place}", visible(native_id))


def fields_name(payload: Any, pointers: Iterable[str]) -> ScopedKey:
    """Return a key made of some fields of a payload, whatever the order of keys and the form of numbers.

    Raises:
        InvalidInputError: A field is missing: all payloads without it would be one operation.
    """
    # Sorted and unique: the order in the settings must not change the key.
    found = [(pointer, pointed_at(payload, pointer)) for pointer in sorted(set(pointers))]
    missing = [
        Problem(pointer, "is missing, and the key is made of it") for pointer, value in found if not value
    ]
    if missing:
        raise InvalidInputError(missing)
    digest = sha256(canonical_json([[pointer, value[0]] for pointer, value in found]).encode()).hexdigest()
    return ScopedKey(FIELDS_SCOPE, f"fields-{digest[:40]}")


def visible(text: str) -> str:
    """Return a text as a key: what is not visible ASCII is percent-encoded, what is long is hashed."""
    return _short(quote(text, safe=_KEPT_IN_KEYS, errors="surrogatepass"))


def _short(key: str) -> str:
    """Return a text, or its hash when it is longer than a key may be."""
    if 0 < len(key) <= MAX_KEY_CHARS:
        return key
    return f"sha256-{sha256(key.encode()).hexdigest()}"
