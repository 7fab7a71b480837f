import durabletask.internal.orchestrator_service_pb2 as pb

from onebox.hub import events
from onebox.hub.entities import Batch, conclude, failed_result, gather, lock_owners, request_for, signal_frame
from onebox.hub.events import events_in, framed
from onebox.hub.model import Entity, Kind, Message

NOW_US = 1_767_225_600_000_000
ME = "@counter@a"


def signal(seq: int, operation: str = "add") -> Message:
    return Message(seq, ME, Kind.OPERATION, NOW_US, signal_frame(ME, operation, "1", f"r{seq}", NOW_US))


def call(seq: int, caller: str) -> Message:
    called = pb.EntityOperationCalledEvent(requestId=f"r{seq}", operation="get")
    called.parentInstanceId.value = caller
    called.parentExecutionId.value = "ce"
    frame = framed(events.event(NOW_US, entityOperationCalled=called))
    return Message(seq, ME, Kind.OPERATION, NOW_US, frame)


def lock(seq: int, caller: str, *lock_set: str, position: int = 0) -> Message:
    asked = pb.EntityLockRequestedEvent(
        criticalSectionId=f"section-{caller}", lockSet=lock_set or (ME,), position=position
    )
    asked.parentInstanceId.value = caller
    return Message(seq, ME, Kind.LOCK, NOW_US, framed(events.event(NOW_US, entityLockRequested=asked)))


def unlock(seq: int, caller: str) -> Message:
    sent = pb.EntityUnlockSentEvent(criticalSectionId=f"section-{caller}")
    return Message(seq, ME, Kind.UNLOCK, NOW_US, framed(events.event(NOW_US, entityUnlockSent=sent)))


def taken(batch: Batch) -> list[int]:
    return [operation.message.seq for operation in batch.operations]


def locked_by(owner: str) -> Entity:
    return Entity(ME, "1", owner, f"section-{owner}")


def test_takes_operations_in_order_of_arrival() -> None:
    assert taken(gather(Entity(ME), [signal(1), call(2, "o"), signal(3)], NOW_US)) == [1, 2, 3]


def test_a_lock_is_granted_after_what_came_before_it() -> None:
    batch = gather(Entity(ME), [signal(1), lock(2, "o"), signal(3), call(4, "o")], NOW_US)
    assert taken(batch) == [1, 4]
    assert (batch.entity.lock_owner, batch.entity.lock_section) == ("o", "section-o")
    (post,) = batch.posts
    assert post.target == "o"
    assert events_in(post.events)[0].entityLockGranted.criticalSectionId == "section-o"


def test_a_lock_on_several_is_passed_on() -> None:
    batch = gather(Entity(ME), [lock(1, "o", ME, "@counter@b")], NOW_US)
    (post,) = batch.posts
    assert (post.target, post.kind) == ("@counter@b", Kind.LOCK)
    assert events_in(post.events)[0].entityLockRequested.position == 1


def test_only_the_owner_passes_a_lock() -> None:
    batch = gather(locked_by("o"), [signal(1), call(2, "x"), lock(3, "x"), call(4, "o")], NOW_US)
    assert taken(batch) == [4]
    assert batch.handled == []


def test_the_next_goes_on_after_the_unlock() -> None:
    waiting = [signal(1), lock(2, "x"), unlock(3, "o")]
    batch = gather(locked_by("o"), waiting, NOW_US)
    assert [message.seq for message in batch.handled] == [3]
    assert batch.entity.lock_owner is None
    later = gather(batch.entity, waiting[:2], NOW_US)
    assert taken(later) == [1]
    assert later.entity.lock_owner == "x"


def test_a_stale_unlock_is_dropped() -> None:
    batch = gather(locked_by("o"), [unlock(1, "somebody-else")], NOW_US)
    assert batch.entity.lock_owner == "o"
    assert [message.seq for message in batch.handled] == [1]


def test_who_has_ended_gets_no_lock_and_keeps_none() -> None:
    waiting = [lock(1, "x", ME, "@counter@b"), signal(2), lock(3, "y")]
    batch = gather(locked_by("o"), waiting, NOW_US, {"o", "x"})
    assert set(lock_owners(locked_by("o"), waiting)) == {"o", "x", "y"}
    assert batch.entity.lock_owner == "y"
    assert [message.seq for message in batch.handled] == [1, 3]
    assert [operation.message.seq for operation in batch.operations] == [2]
    assert [post.target for post in batch.posts] == ["y"]


def test_there_is_nothing_to_do_for_others_while_locked() -> None:
    assert gather(locked_by("o"), [signal(1)], NOW_US).is_empty


def test_the_request_carries_the_state_and_the_operations() -> None:
    request = request_for(gather(Entity(ME, state="5"), [signal(1), signal(2, "remove")], NOW_US))
    assert request.entityState.value == "5"
    assert [operation.operation for operation in request.operations] == ["add", "remove"]


def test_a_call_is_answered_to_the_execution_that_asked() -> None:
    batch = gather(Entity(ME), [call(1, "o")], NOW_US)
    result = pb.EntityBatchResult(results=[pb.OperationResult(success=pb.OperationResultSuccess())])
    result.results[0].success.result.value = "42"
    changes = conclude(batch, result, NOW_US)
    (post,) = changes.posts
    assert (post.target, post.execution_id) == ("o", "ce")
    assert events_in(post.events)[0].entityOperationCompleted.output.value == "42"


def test_a_batch_that_could_not_run_keeps_the_state_and_fails_its_callers() -> None:
    batch = gather(Entity(ME, state="5"), [signal(1), call(2, "o")], NOW_US)
    changes = conclude(batch, failed_result(batch, events.failure_details("E", "no")), NOW_US)
    assert changes.entity.state == "5"
    assert [message.seq for message in changes.done] == [1, 2]
    assert events_in(changes.posts[0].events)[0].entityOperationFailed.failureDetails.errorMessage == "no"


def test_what_the_sdk_did_not_come_to_stays() -> None:
    batch = gather(Entity(ME), [signal(1), signal(2)], NOW_US)
    result = pb.EntityBatchResult(results=[pb.OperationResult(success=pb.OperationResultSuccess())])
    assert [message.seq for message in conclude(batch, result, NOW_US).done] == [1]


def test_an_empty_state_is_no_state() -> None:
    batch = gather(Entity(ME, state="5"), [signal(1)], NOW_US)
    result = pb.EntityBatchResult(results=[pb.OperationResult(success=pb.OperationResultSuccess())])
    assert conclude(batch, result, NOW_US).entity.state is None


def test_signals_and_starts_of_an_entity_are_sent() -> None:
    batch = gather(Entity(ME), [signal(1)], NOW_US)
    result = pb.EntityBatchResult(results=[pb.OperationResult(success=pb.OperationResultSuccess())])
    later = pb.SendSignalAction(
        instanceId="@counter@b", name="add", scheduledTime=events.timestamp(NOW_US + 9)
    )
    result.actions.add().sendSignal.CopyFrom(later)
    result.actions.add().startNewOrchestration.CopyFrom(pb.StartNewOrchestrationAction(name="report"))
    changes = conclude(batch, result, NOW_US)
    assert [(post.target, post.due_us) for post in changes.posts] == [("@counter@b", NOW_US + 9)]
    assert [start.name for start in changes.starts] == ["report"]
    assert changes.starts[0].instance_id
