"""The trace context of W3C, as callers and messages bring it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from durable_retry.base.json_forms import JsonShape

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
_DIAGNOSTIC_ID: Final = "Diagnostic-Id"

MAX_TRACESTATE_CHARS: Final = 512
"""The length that everyone must pass on; a longer tracestate is dropped, as the recommendation allows."""

_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_TRACESTATE: Final = re.compile(r"[\x20-\x7e]+")


@dataclass(frozen=True, slots=True)
class TraceContext(JsonShape):
    """A position in a trace; its JSON form is that of the two headers."""

    traceparent: str  # version, trace id, span id and flags in the form of the header
    tracestate: str | None = None  # what vendors add to it; None when they do not

    @property
    def trace_id(self) -> str:
        """The id of the trace, 32 hexadecimal digits."""
        return self.traceparent.split("-")[1]

    @classmethod
    def read(cls, traceparent: Any, tracestate: Any = None) -> Self | None:
        """Read the two values of a caller, of whatever form.

        Without a valid `traceparent` it is None. Of a later version the part that this version defines
        counts; a tracestate that is malformed or too long is dropped.
        """
        match = _TRACEPARENT.match(traceparent.strip()) if isinstance(traceparent, str) else None
        if match is None or not _ends_well(traceparent.strip(), match.end()):
            return None
        return cls(match[0], _usable_tracestate(tracestate))


def trace_in(properties: Any) -> TraceContext | None:
    """Return the position in the properties of a message, of whatever form; None without one."""
    if not isinstance(properties, Mapping):
        return None
    traceparent = properties.get(TRACEPARENT) or properties.get(_DIAGNOSTIC_ID)
    return TraceContext.read(traceparent, properties.get(TRACESTATE))


def _ends_well(traceparent: str, end: int) -> bool:
    # Only a later version than 00 may continue, after a dash (W3C Trace Context, "Versioning").
    return len(traceparent) == end or (not traceparent.startswith("00-") and traceparent[end] == "-")


def _usable_tracestate(tracestate: Any) -> str | None:
    if not isinstance(tracestate, str) or len(tracestate) > MAX_TRACESTATE_CHARS:
        return None
    return tracestate if _TRACESTATE.fullmatch(tracestate) else None
