"""What names an operation, and how far each name reaches.

A scope sets keys apart that are equal by accident. Four kinds, and each is the same in every source:

    key:TENANT        keys that callers choose: the body's `key`, the header Idempotency-Key
    event:TENANT      events: `source` and `id` of an envelope
    fields:           keys made of named fields of the payload
    source:NAME/...   ids of a source's own: a message id, a partition with a sequence number
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote

from engine.envelope import EventName
from engine.fingerprint import canonical_json, pointed_at
from engine.problem import InvalidInputError, Problem

MAX_KEY_CHARS: Final = 255

_VISIBLE: Final = "".join(chr(code) for code in range(0x21, 0x7F))
_KEPT_IN_KEYS: Final = _VISIBLE.replace("%", "")
_KEPT_IN_EVENT_NAMES: Final = _KEPT_IN_KEYS.replace("#", "")

FIELDS_SCOPE: Final = "fields:"


@dataclass(frozen=True, slots=True)
class Name:
    """A key and its scope; `engine.idempotency.operation_id_for` makes the operation's id of them."""

    scope: str
    key: str


def explicit_scope(tenant: str) -> str:
    """Return the scope of keys that callers choose: one for all sources, one for each tenant."""
    return f"key:{tenant}"


def event_scope(tenant: str) -> str:
    """Return the scope of events: one for all sources, one for each tenant."""
    return f"event:{tenant}"


def event_name(event: EventName, tenant: str = "") -> Name:
    """Name an event: `source` and `id`, parted by the `#` that is escaped in both, so no two names meet."""
    parts = (
        quote(part, safe=_KEPT_IN_EVENT_NAMES, errors="surrogatepass") for part in (event.source, event.id)
    )
    return Name(event_scope(tenant), _short("#".join(parts)))


def source_name(source: str, place: str, native_id: str) -> Name:
    """Name a message by its source's own id.

    Args:
        source: `queue`, `kafka`, ...
        place: Within which the id is unique, such as the queue's name.
        native_id: Any text.
    """
    return Name(f"source:{source}/{place}", visible(native_id))


def fields_name(payload: Any, pointers: Iterable[str]) -> Name:
    """Name a payload by some of its fields; the order of keys does not matter, nor how a number is written.

    Raises:
        InvalidInputError: A field is not there: whatever lacks it would be one operation.
    """
    found = [(pointer, pointed_at(payload, pointer)) for pointer in sorted(set(pointers))]
    missing = [
        Problem(pointer, "is missing, and the key is made of it") for pointer, value in found if not value
    ]
    if missing:
        raise InvalidInputError(missing)
    digest = sha256(canonical_json([[pointer, value[0]] for pointer, value in found]).encode()).hexdigest()
    return Name(FIELDS_SCOPE, f"fields-{digest[:40]}")


def visible(text: str) -> str:
    """Make a key of any text: what is not visible ASCII is percent-encoded, what is long is hashed."""
    return _short(quote(text, safe=_KEPT_IN_KEYS, errors="surrogatepass"))


def _short(key: str) -> str:
    """Keep text to the length of a key: its hash stands for a longer one."""
    if 0 < len(key) <= MAX_KEY_CHARS:
        return key
    return f"sha256-{sha256(key.encode()).hexdigest()}"
