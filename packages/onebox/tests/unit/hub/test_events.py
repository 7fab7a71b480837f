import durabletask.internal.orchestrator_service_pb2 as pb
import pytest

from onebox.hub import events
from onebox.hub.events import as_new, events_in, frame_all, framed, packed, request_bytes, unpacked


def raised(data: str) -> pb.HistoryEvent:
    return events.event(1_000_001, eventRaised=pb.EventRaisedEvent(name="go", input=events.text(data)))


@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 20_000, 3_000_000])
def test_a_joined_request_is_the_one_that_protobuf_would_write(size: int) -> None:
    past, new = [raised("a" * size), raised("b")], [raised("c" * size)]
    expected = pb.OrchestratorRequest(instanceId="i", pastEvents=past, newEvents=new)
    expected.executionId.value = "e"
    joined = request_bytes("i", "e", [frame_all(past)], [frame_all(new)])
    assert pb.OrchestratorRequest.FromString(joined) == expected


def test_several_events_in_one_frame_become_new_one_by_one() -> None:
    several = [raised("a"), raised("b" * 300), raised("")]
    parsed = pb.OrchestratorRequest.FromString(as_new(frame_all(several)))
    assert list(parsed.newEvents) == several


@pytest.mark.parametrize("at_us", [1_000_000, 1_000_001, 1_767_225_600_123_456, 253_402_300_799_999_999])
def test_the_frames_around_a_turn_are_those_that_protobuf_would_write(at_us: int) -> None:
    started = events.event(at_us, orchestratorStarted=pb.OrchestratorStartedEvent())
    completed = events.event(at_us, orchestratorCompleted=pb.OrchestratorCompletedEvent())
    assert events.orchestrator_started(at_us) == framed(started)
    assert events.orchestrator_completed(at_us) == framed(completed)


@pytest.mark.parametrize("size", [0, 1, 100, 4_000, 5_000, 20_000])
def test_a_row_gives_back_the_events_that_it_holds(size: int) -> None:
    frames = frame_all([raised("a" * size), raised("b")])
    assert unpacked(packed(frames)) == frames


def test_the_row_of_a_long_turn_is_short() -> None:
    frames = frame_all([raised(f'{{"number": {number}, "status": "succeeded"}}') for number in range(500)])
    assert len(packed(frames)) < len(frames) / 3
    assert packed(frames)[:1] not in {frames[:1], packed(frames[:100])[:1]}


def test_nothing_becomes_nothing() -> None:
    assert as_new(b"") == b""
    assert events_in(b"") == []


def test_stored_events_can_be_read_back() -> None:
    assert events_in(framed(raised("x"))) == [raised("x")]


def test_an_instant_survives_the_way_to_protobuf_and_back() -> None:
    assert events.microseconds(events.timestamp(1_767_225_600_123_456)) == 1_767_225_600_123_456


def test_a_part_of_a_microsecond_is_rounded_up_so_that_no_timer_is_early() -> None:
    stamp = events.timestamp(5)
    stamp.nanos += 1
    assert events.microseconds(stamp) == 6
