"""History events: the form in which they are stored and sent, and those that the hub itself writes.

A protobuf message is the concatenation of its fields, so a request is joined from stored bytes without
taking them apart: each event is kept with the key and length of an `OrchestratorRequest.pastEvents` element;
only the key differs in a turn's new ones.

The members of each event follow `orchestrator_service.proto` and Microsoft's in-memory backend; unlike that
one, every event bears the time at which it was written.
"""

import functools
import zlib
from collections.abc import Iterable

import durabletask.internal.orchestrator_service_pb2 as pb
from google.protobuf.timestamp_pb2 import Timestamp
from google.protobuf.wrappers_pb2 import StringValue

from onebox.hub.model import Start, Status

_LENGTH_DELIMITED = 2
_PAST_KEY = bytes([pb.OrchestratorRequest.PASTEVENTS_FIELD_NUMBER << 3 | _LENGTH_DELIMITED])
_NEW_KEY = bytes([pb.OrchestratorRequest.NEWEVENTS_FIELD_NUMBER << 3 | _LENGTH_DELIMITED])
_UNNUMBERED = pb.HistoryEvent(eventId=-1).SerializeToString()
_STAMP_KEY = bytes([pb.HistoryEvent.TIMESTAMP_FIELD_NUMBER << 3 | _LENGTH_DELIMITED])
_STARTED = pb.HistoryEvent(orchestratorStarted=pb.OrchestratorStartedEvent()).SerializeToString()
_COMPLETED = pb.HistoryEvent(orchestratorCompleted=pb.OrchestratorCompletedEvent()).SerializeToString()
_ZLIB_LEVEL, _ZLIB_WINDOW_BITS, _ZLIB_MEMORY_LEVEL = 1, 12, 5  # fast: half of the time is to set it up
_ZLIB_KEY = b"\x48"  # the first byte of a packed row with this window; no row that is not packed begins so
_PACKED_FROM_BYTES = (
    4096  # of a shorter one little is gained before the end of its instance packs it (`archive`)
)
_MORE = 0x80
_SHORT = [bytes([value]) for value in range(_MORE)]
_MICROSECONDS = 1_000_000
_KEPT_STAMPS = 16


def _varint(value: int) -> bytes:
    """Return a number in protobuf's variable length; nearly all of these take one byte or two."""
    if value < _MORE:
        return _SHORT[value]
    if value < _MORE << 7:
        return bytes((value & 0x7F | _MORE, value >> 7))
    out = bytearray()
    while value >= _MORE:
        out.append(value & 0x7F | _MORE)
        value >>= 7
    out.append(value)
    return bytes(out)


def framed(event: pb.HistoryEvent) -> bytes:
    """Return the event as it is stored."""
    return _element(_PAST_KEY, event.SerializeToString())


def _element(key: bytes, body: bytes) -> bytes:
    """Return an embedded message with its key and length."""
    length = len(body)
    return key + (_SHORT[length] if length < _MORE else _varint(length)) + body


def frame_all(events: Iterable[pb.HistoryEvent]) -> bytes:
    """Return the events as they are stored, joined."""
    return b"".join(map(framed, events))


def packed(frames: bytes) -> bytes:
    """Return a turn's stored events as their row holds them: long ones take a third of the room."""
    if len(frames) < _PACKED_FROM_BYTES:
        return frames
    packer = zlib.compressobj(_ZLIB_LEVEL, zlib.DEFLATED, _ZLIB_WINDOW_BITS, _ZLIB_MEMORY_LEVEL)
    return packer.compress(frames) + packer.flush()


def unpacked(row: bytes) -> bytes:
    """Return the events of a row; short ones are not packed."""
    return zlib.decompress(row) if row.startswith(_ZLIB_KEY) else row


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


@functools.lru_cache(_KEPT_STAMPS)
def timestamp(instant_us: int) -> Timestamp:
    """Return microseconds since 1970 as a protobuf timestamp, to be copied."""
    seconds, rest = divmod(instant_us, _MICROSECONDS)
    return Timestamp(seconds=seconds, nanos=rest * 1000)


def microseconds(stamp: Timestamp) -> int:
    """Return a protobuf timestamp as microseconds since 1970, rounded up so that nothing is early."""
    seconds, nanos = int(stamp.seconds), int(stamp.nanos)
    return seconds * _MICROSECONDS + -(-nanos // 1000)


def text(value: str | None) -> StringValue | None:
    """Return a wrapped string; None stays unset."""
    return None if value is None else StringValue(value=value)


def event(at_us: int, event_id: int = -1, **body: object) -> pb.HistoryEvent:
    """Return an event of the kind that the one keyword names."""
    return pb.HistoryEvent(eventId=event_id, timestamp=timestamp(at_us), **body)  # type: ignore[arg-type] # one of 28 bodies


def orchestrator_started(at_us: int) -> bytes:
    """Frame the event that opens a turn and sets the orchestrator's clock."""
    return _bare(at_us, _STARTED)


def orchestrator_completed(at_us: int) -> bytes:
    """Frame the event that closes a turn."""
    return _bare(at_us, _COMPLETED)


def _bare(at_us: int, body: bytes) -> bytes:
    """Frame an event without fields of its own: each turn has two, and protobuf is slower to write them."""
    return _element(_PAST_KEY, _UNNUMBERED + _stamp(at_us) + body)


@functools.lru_cache(_KEPT_STAMPS)
def _stamp(at_us: int) -> bytes:
    """Return an event's time: the events of a group of transactions have the same."""
    seconds, rest = divmod(at_us, _MICROSECONDS)
    nanos = b"\x10" + _varint(rest * 1000) if rest else b""
    return _element(_STAMP_KEY, _seconds(seconds) + nanos)


@functools.lru_cache(_KEPT_STAMPS)
def _seconds(seconds: int) -> bytes:
    return b"\x08" + _varint(seconds)


def execution_started(start: Start, execution_id: str, at_us: int, tags: dict[str, str]) -> bytes:
    """Frame the event that an execution begins with."""
    body = pb.ExecutionStartedEvent(
        name=start.name,
        version=text(start.version),
        input=text(start.input),
        orchestrationInstance=pb.OrchestrationInstance(
            instanceId=start.instance_id, executionId=text(execution_id)
        ),
        tags=tags,
        scheduledStartTimestamp=None if start.start_at_us is None else timestamp(start.start_at_us),
    )
    if start.parent is not None:
        body.parentInstance.CopyFrom(_parent_info(start))
    if start.trace is not None:
        body.parentTraceContext.MergeFromString(start.trace)
    return framed(event(at_us, executionStarted=body))


def _parent_info(start: Start) -> pb.ParentInstanceInfo:
    assert start.parent is not None  # noqa: S101 - the caller has looked
    return pb.ParentInstanceInfo(
        taskScheduledId=start.parent.task_id,
        name=text(start.parent_name),
        orchestrationInstance=pb.OrchestrationInstance(
            instanceId=start.parent.instance_id, executionId=text(start.parent.execution_id)
        ),
    )


def execution_completed(
    at_us: int, status: Status, result: str | None, failure: pb.TaskFailureDetails | None
) -> bytes:
    """Frame the last event of an execution; a rewind recognises a finished history by it."""
    body = pb.ExecutionCompletedEvent(
        orchestrationStatus=pb.OrchestrationStatus.Name(status.value),
        result=text(result),
        failureDetails=failure,
    )
    return framed(event(at_us, executionCompleted=body))


def event_raised(at_us: int, name: str, data: str | None) -> bytes:
    """Frame an external event."""
    return framed(event(at_us, eventRaised=pb.EventRaisedEvent(name=name, input=text(data))))


def terminated(at_us: int, output: str | None) -> bytes:
    """Frame the request to end an instance."""
    return framed(event(at_us, executionTerminated=pb.ExecutionTerminatedEvent(input=text(output))))


def suspended(at_us: int, reason: str | None) -> bytes:
    """Frame the request to pause an instance."""
    return framed(event(at_us, executionSuspended=pb.ExecutionSuspendedEvent(input=text(reason))))


def resumed(at_us: int, reason: str | None) -> bytes:
    """Frame the request to go on with a paused instance."""
    return framed(event(at_us, executionResumed=pb.ExecutionResumedEvent(input=text(reason))))


def rewound(at_us: int, reason: str | None, parent_execution_id: str | None = None) -> bytes:
    """Frame the request to take a failed instance back to before its failure."""
    body = pb.ExecutionRewoundEvent(reason=text(reason), parentExecutionId=text(parent_execution_id))
    return framed(event(at_us, executionRewound=body))


def timer_fired(at_us: int, timer_id: int, fire_at: Timestamp) -> bytes:
    """Frame the event of a timer that is due."""
    return framed(event(at_us, timerFired=pb.TimerFiredEvent(fireAt=fire_at, timerId=timer_id)))


def task_completed(at_us: int, task_id: int, result: str | None) -> bytes:
    """Frame an activity's result."""
    body = pb.TaskCompletedEvent(taskScheduledId=task_id, result=text(result))
    return framed(event(at_us, taskCompleted=body))


def task_failed(at_us: int, task_id: int, failure: pb.TaskFailureDetails) -> bytes:
    """Frame an activity's failure."""
    body = pb.TaskFailedEvent(taskScheduledId=task_id, failureDetails=failure)
    return framed(event(at_us, taskFailed=body))


def child_finished(
    at_us: int, task_id: int, status: Status, output: str | None, failure: bytes | None
) -> bytes:
    """Frame the event for the parent of a sub-orchestration that has ended."""
    if status is Status.COMPLETED:
        done = pb.SubOrchestrationInstanceCompletedEvent(taskScheduledId=task_id, result=text(output))
        return framed(event(at_us, subOrchestrationInstanceCompleted=done))
    details = pb.TaskFailureDetails.FromString(failure) if failure else failure_of_end(status)
    failed = pb.SubOrchestrationInstanceFailedEvent(taskScheduledId=task_id, failureDetails=details)
    return framed(event(at_us, subOrchestrationInstanceFailed=failed))


def child_refused(at_us: int, task_id: int, message: str) -> bytes:
    """Frame that a sub-orchestration could not be created."""
    details = failure_details("OrchestrationAlreadyExistsError", message)
    failed = pb.SubOrchestrationInstanceFailedEvent(taskScheduledId=task_id, failureDetails=details)
    return framed(event(at_us, subOrchestrationInstanceFailed=failed))


def failure_of_end(status: Status) -> pb.TaskFailureDetails:
    """Return the details for an end that brought none, as a termination."""
    return failure_details("SubOrchestrationFailedError", f"Sub-orchestration ended {status.name.lower()}")


def failure_details(
    error_type: str, message: str, stack_trace: str | None = None, *, is_non_retriable: bool = False
) -> pb.TaskFailureDetails:
    """Return failure details; an empty message would read as no failure, so there is always one."""
    return pb.TaskFailureDetails(
        errorType=error_type,
        errorMessage=message or error_type,
        stackTrace=text(stack_trace),
        isNonRetriable=is_non_retriable,
    )
