"""Joins serialised history events into requests without taking them apart.

A protobuf message is the concatenation of its fields, so a request is made from stored bytes: each event is
kept with the key and length of an `OrchestratorRequest.pastEvents` element; only the key differs in a turn's
new ones.
"""

from collections.abc import Iterable

import durabletask.internal.orchestrator_service_pb2 as pb

_LENGTH_DELIMITED = 2
_PAST_KEY = bytes([pb.OrchestratorRequest.PASTEVENTS_FIELD_NUMBER << 3 | _LENGTH_DELIMITED])
_NEW_KEY = bytes([pb.OrchestratorRequest.NEWEVENTS_FIELD_NUMBER << 3 | _LENGTH_DELIMITED])
_MORE = 0x80


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= _MORE:
        out.append(value & 0x7F | _MORE)
        value >>= 7
    out.append(value)
    return bytes(out)


def framed(event: pb.HistoryEvent) -> bytes:
    """Return the event as it is stored."""
    body: bytes = event.SerializeToString()
    return _PAST_KEY + _varint(len(body)) + body


def frame_all(events: Iterable[pb.HistoryEvent]) -> bytes:
    """Return the events as they are stored, joined."""
    return b"".join(map(framed, events))


def as_new(frames: bytes) -> bytes:
    """Return stored events with the key of `newEvents`."""
    out = []
    at = 0
    while at < len(frames):
        end, start = _element_end(frames, at), at + 1
        out.append(_NEW_KEY + frames[start:end])
        at = end
    return out[0] if len(out) == 1 else b"".join(out)


def _element_end(frames: bytes, at: int) -> int:
    """Where the element that begins at `at` ends."""
    at += 1
    length = shift = 0
    while True:
        byte = frames[at]
        at += 1
        length |= (byte & 0x7F) << shift
        if byte < _MORE:
            return at + length
        shift += 7


def events_in(frames: bytes) -> list[pb.HistoryEvent]:
    """Return stored events as objects."""
    return list(pb.OrchestratorRequest.FromString(frames).pastEvents)


def request_bytes(instance_id: str, execution_id: str, past: Iterable[bytes], new: Iterable[bytes]) -> bytes:
    """Return a serialised `OrchestratorRequest` of stored events."""
    head = pb.OrchestratorRequest(instanceId=instance_id)
    head.executionId.value = execution_id
    return b"".join((head.SerializeToString(), *past, *map(as_new, new)))
