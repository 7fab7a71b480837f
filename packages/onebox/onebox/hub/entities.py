"""Entities: what one does with its inbox, and the transactions that store it.

`gather` and `conclude` are pure: from messages and the SDK's answer to the changes of one transaction.
"""

import json
import logging
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

import durabletask.internal.orchestrator_service_pb2 as pb

from onebox.hub import archive, events, instances
from onebox.hub.database import Transaction
from onebox.hub.events import events_in, framed
from onebox.hub.model import Entity, FencedError, InstanceExistsError, Kind, Lane, Message, Start
from onebox.hub.turn import Post

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation for the SDK to run; `caller` is None for a signal."""

    message: Message
    request: pb.OperationRequest
    caller: str | None
    caller_execution_id: str | None


@dataclass(slots=True)
class Batch:
    """What an entity takes from its inbox in one go.

    Attributes:
        entity: The entity with the locks as they are afterwards.
        at_us: When it is taken.
        operations: To be run by the SDK, in order; may be none.
        handled: Lock messages that are dealt with here.
        posts: Granted and forwarded lock requests.
    """

    entity: Entity
    at_us: int
    operations: list[Operation] = field(default_factory=list)
    handled: list[Message] = field(default_factory=list)
    posts: list[Post] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do: everything waits for the lock to be released."""
        return not self.operations and not self.handled


def lock_owners(entity: Entity, visible: Sequence[Message]) -> Iterator[str]:
    """Yield who has the entity's lock, and who asks for it."""
    if entity.lock_owner is not None:
        yield entity.lock_owner
    for message in visible:
        if message.kind is Kind.LOCK:
            yield from (each.entityLockRequested.parentInstanceId.value for each in events_in(message.events))


def gather(
    entity: Entity, visible: Sequence[Message], now_us: int, ended: Collection[str] = frozenset()
) -> Batch:
    """Take what the entity may do now, in order of arrival.

    While it is locked, only calls of the lock's owner and the unlock pass; the rest keeps its place. A lock
    request is granted after everything that came before it, which is in the same batch.

    Args:
        entity: As it is stored.
        visible: Its inbox.
        now_us: When it is taken.
        ended: Those of `lock_owners` that have ended: nobody else would ever release what they hold.
    """
    if entity.lock_owner in ended:
        entity = replace(entity, lock_owner=None, lock_section=None)
    batch = Batch(entity, now_us)
    for message in visible:
        for event in events_in(message.events):
            if message.kind is Kind.LOCK and event.entityLockRequested.parentInstanceId.value in ended:
                batch.handled.append(message)
            else:
                _take(batch, message, event, now_us)
    return batch


def _take(batch: Batch, message: Message, event: pb.HistoryEvent, now_us: int) -> None:
    owner = batch.entity.lock_owner
    if message.kind is Kind.UNLOCK:
        batch.handled.append(message)
        if event.entityUnlockSent.criticalSectionId == batch.entity.lock_section:
            batch.entity = replace(batch.entity, lock_owner=None, lock_section=None)
    elif message.kind is Kind.LOCK:
        if owner is None:
            _grant(batch, message, event.entityLockRequested, now_us)
    else:
        operation = _operation(message, event)
        if owner is None or operation.caller == owner:
            batch.operations.append(operation)


def _grant(batch: Batch, message: Message, asked: pb.EntityLockRequestedEvent, now_us: int) -> None:
    """Lock this entity and ask the next of the set; the last one sends the orchestration its grant.

    The SDK sorts the set, so two orchestrations never wait for each other.
    """
    owner = asked.parentInstanceId.value
    batch.entity = replace(batch.entity, lock_owner=owner, lock_section=asked.criticalSectionId)
    batch.handled.append(message)
    position = asked.position + 1
    if position < len(asked.lockSet):
        asked.position = position
        onward = framed(events.event(now_us, entityLockRequested=asked))
        batch.posts.append(Post(asked.lockSet[position], Kind.LOCK, onward))
        return
    granted = pb.EntityLockGrantedEvent(criticalSectionId=asked.criticalSectionId)
    batch.posts.append(Post(owner, Kind.RESULT, framed(events.event(now_us, entityLockGranted=granted))))


def _operation(message: Message, event: pb.HistoryEvent) -> Operation:
    if event.HasField("entityOperationCalled"):
        called = event.entityOperationCalled
        request = pb.OperationRequest(requestId=called.requestId, operation=called.operation)
        if called.HasField("input"):
            request.input.CopyFrom(called.input)
        return Operation(
            message, request, called.parentInstanceId.value, called.parentExecutionId.value or None
        )
    signaled = event.entityOperationSignaled
    request = pb.OperationRequest(requestId=signaled.requestId, operation=signaled.operation)
    if signaled.HasField("input"):
        request.input.CopyFrom(signaled.input)
    return Operation(message, request, None, None)


def request_for(batch: Batch) -> pb.EntityBatchRequest:
    """Return what the SDK is asked to run."""
    return pb.EntityBatchRequest(
        instanceId=batch.entity.id,
        entityState=events.text(batch.entity.state),
        operations=[operation.request for operation in batch.operations],
    )


@dataclass(slots=True)
class BatchChanges:
    """The changes of one batch: the entity, the messages that are done, messages and starts to send."""

    entity: Entity
    done: list[Message]
    posts: list[Post]
    starts: list[Start] = field(default_factory=list)


def conclude(batch: Batch, result: pb.EntityBatchResult | None, now_us: int) -> BatchChanges:
    """Turn the SDK's result (None when it had nothing to run) into changes.

    Fewer results than operations means that the SDK stopped early: the rest stays in the inbox.
    """
    was = batch.entity
    state = was.state if result is None else result.entityState.value or None
    entity = Entity(was.id, state, was.lock_owner, was.lock_section, now_us)
    changes = BatchChanges(entity, list(batch.handled), list(batch.posts))
    if result is None:
        return changes
    for operation, outcome in zip(batch.operations, result.results, strict=False):
        changes.done.append(operation.message)
        if operation.caller is not None:
            changes.posts.append(_answer(operation, operation.caller, outcome, now_us))
    for action in result.actions:
        _act(changes, action, now_us)
    return changes


def _answer(operation: Operation, caller: str, outcome: pb.OperationResult, now_us: int) -> Post:
    request_id = operation.request.requestId
    if outcome.HasField("failure"):
        failed = pb.EntityOperationFailedEvent(
            requestId=request_id, failureDetails=outcome.failure.failureDetails
        )
        event = events.event(now_us, entityOperationFailed=failed)
    else:
        completed = pb.EntityOperationCompletedEvent(requestId=request_id, output=outcome.success.result)
        event = events.event(now_us, entityOperationCompleted=completed)
    return Post(caller, Kind.RESULT, framed(event), operation.caller_execution_id)


def _act(changes: BatchChanges, action: pb.OperationAction, now_us: int) -> None:
    if action.HasField("sendSignal"):
        signal = action.sendSignal
        input_ = signal.input.value if signal.HasField("input") else None
        due_us = events.microseconds(signal.scheduledTime) if signal.HasField("scheduledTime") else None
        body = signal_frame(signal.instanceId, signal.name, input_, uuid.uuid4().hex, now_us)
        changes.posts.append(Post(signal.instanceId, Kind.OPERATION, body, due_us=due_us))
        return
    asked = action.startNewOrchestration
    changes.starts.append(
        Start(
            instance_id=asked.instanceId or uuid.uuid4().hex,
            name=asked.name,
            version=asked.version.value if asked.HasField("version") else None,
            input=asked.input.value if asked.HasField("input") else None,
            start_at_us=events.microseconds(asked.scheduledTime) if asked.HasField("scheduledTime") else None,
        )
    )


def signal_frame(entity_id: str, operation: str, input_: str | None, request_id: str, now_us: int) -> bytes:
    """Frame a one-way operation."""
    body = pb.EntityOperationSignaledEvent(
        requestId=request_id,
        operation=operation,
        input=events.text(input_),
        targetInstanceId=events.text(entity_id),
    )
    return framed(events.event(now_us, entityOperationSignaled=body))


def failed_result(batch: Batch, failure: pb.TaskFailureDetails) -> pb.EntityBatchResult:
    """Return the result of a batch that could not be run: each operation failed, the state is as before."""
    failed = pb.OperationResult(failure=pb.OperationResultFailure(failureDetails=failure))
    return pb.EntityBatchResult(
        results=[failed] * len(batch.operations), entityState=events.text(batch.entity.state)
    )


def conclude_dead(batch: Batch, function: str) -> BatchChanges:
    """Return the changes of a batch whose function ended without an answer, as DurableTask.Core makes them.

    The state stays and signals are gone. A call is answered with an external event that is named by its
    request and whose result is plain text; a hub on Azure Storage stored it so (extension 3.14.1).
    """
    changes = conclude(batch, None, batch.at_us)
    text = f"Invocation of function '{function}' failed with an exception."
    details = {
        "ErrorType": "FunctionInvocationFailed",
        "ErrorMessage": text,
        "StackTrace": None,
        "InnerFailure": None,
        "IsNonRetriable": True,
    }
    answer = json.dumps(
        {"result": text, "exceptionType": "entity dispatch failed", "failureDetails": details}
    )
    for operation in batch.operations:
        changes.done.append(operation.message)
        if operation.caller is not None:
            raised = events.event_raised(batch.at_us, operation.request.requestId, answer)
            changes.posts.append(Post(operation.caller, Kind.RESULT, raised, operation.caller_execution_id))
    return changes


def commit_batch(tx: Transaction, changes: BatchChanges) -> None:
    """Store all that a batch changed.

    Raises:
        FencedError: Some of its messages are gone: the batch has run before, or the entity was purged.
    """
    done = tx.run_many("message.delete", [(message.seq,) for message in changes.done])
    if changes.done and done != len(changes.done):
        raise FencedError(f"a batch of '{changes.entity.id}' was overtaken")
    entity = changes.entity
    if entity.state is None:
        tx.run("entity.delete", entity.id)  # a row that shrinks in its place would leave its page half empty
    state = archive.packed_state(entity.state)
    tx.run("entity.put", entity.id, state, entity.lock_owner, entity.lock_section, entity.modified_us)
    send_from_batch(tx, changes)


def send_from_batch(tx: Transaction, changes: BatchChanges) -> None:
    """Store all that a batch asks others for, and its answers."""
    for post in changes.posts:
        tx.post(post.target, post.kind, post.events, execution_id=post.execution_id, due_us=post.due_us)
    for asked in changes.starts:
        try:
            instances.start(tx, asked)
        except InstanceExistsError as refused:
            _LOGGER.warning("entity '%s' could not start an orchestration: %s", changes.entity.id, refused)


def signal(
    tx: Transaction,
    entity_id: str,
    operation: str,
    input_: str | None,
    *,
    request_id: str | None = None,
    due_us: int | None = None,
) -> None:
    """Put a one-way operation into an entity's inbox, not to run before `due_us` (None: at once)."""
    frame = signal_frame(entity_id, operation, input_, request_id or uuid.uuid4().hex, tx.now_us)
    tx.post(entity_id, Kind.OPERATION, frame, due_us=due_us)


def purge(tx: Transaction, entity_id: str) -> int:
    """Erase an entity with its inbox; return whether there was one (1) or not (0)."""
    tx.run("message.delete_all", entity_id)
    return tx.run("entity.delete", entity_id).rowcount


def clean(tx: Transaction, *, remove_empty: bool, release_orphans: bool) -> tuple[int, int]:
    """Remove entities that hold nothing, and locks whose owner is gone; return how many of each."""
    released = _release_orphans(tx) if release_orphans else 0
    removed = tx.run("entity.delete_empty").rowcount if remove_empty else 0
    return removed, released


def _release_orphans(tx: Transaction) -> int:
    orphans = [row[0] for row in tx.run("entity.orphans")]
    for entity_id in orphans:
        tx.run("entity.release", entity_id)
        tx.effects.wake.append((entity_id, Lane.GOING))
    return len(orphans)
