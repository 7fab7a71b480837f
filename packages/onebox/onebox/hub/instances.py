"""Transactions on whole instances: start, message, terminate, restart, rewind, purge.

Each function runs inside one transaction. `InstanceNotFoundError` means that no instance has the id,
`InstanceExistsError` that a start may not replace what is there, `InstanceFinishedError` that the instance
takes no more messages, `WrongStatusError` that the request needs another status. A raised error leaves
nothing behind.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from onebox.hub import archive, events
from onebox.hub.database import Transaction
from onebox.hub.model import (
    TERMINAL,
    FencedError,
    Head,
    InstanceExistsError,
    InstanceFinishedError,
    InstanceNotFoundError,
    Kind,
    Lane,
    Message,
    Parent,
    Start,
    Status,
    WrongStatusError,
    tags_from,
)
from onebox.hub.turn import Ended, Renewed, Rewound, Turn


def start(tx: Transaction, asked: Start) -> str:
    """Create an instance, in place of a replaceable one; return its execution id."""
    status = status_of(tx, asked.instance_id)
    if status is not None:
        if status not in (TERMINAL if asked.replaceable is None else asked.replaceable):
            raise InstanceExistsError(asked.instance_id, status)
        erase(tx, asked.instance_id)
    execution_id = uuid.uuid4().hex
    parent = asked.parent
    parent_fields = (
        (None,) * 3 if parent is None else (parent.instance_id, parent.execution_id, parent.task_id)
    )
    tx.run(
        "instance.insert",
        *(
            asked.instance_id,
            execution_id,
            asked.name,
            asked.version,
            asked.input,
            asked.tags,
            *parent_fields,
        ),
        *(tx.now_us, tx.now_us, asked.start_at_us),
    )
    begin = events.execution_started(asked, execution_id, tx.now_us, tags_from(asked.tags))
    tx.post(asked.instance_id, Kind.START, begin, execution_id=execution_id, due_us=asked.start_at_us)
    tx.effects.changed.append(asked.instance_id)
    return execution_id


def status_of(tx: Transaction, instance_id: str) -> Status | None:
    """Return what an instance is doing; None when there is none."""
    row = tx.run("instance.status", instance_id).fetchone()
    return None if row is None else Status(row[0])


def live_status(tx: Transaction, instance_id: str) -> Status:
    """Return the status of an instance that takes messages."""
    status = status_of(tx, instance_id)
    if status is None:
        raise InstanceNotFoundError(instance_id)
    if status.is_terminal:
        raise InstanceFinishedError(instance_id, status)
    return status


def raise_event(tx: Transaction, instance_id: str, name: str, data: str | None) -> None:
    """Hand an external event to an instance, whether or not it waits for one."""
    live_status(tx, instance_id)
    tx.post(instance_id, Kind.EVENT, events.event_raised(tx.now_us, name, data))


def suspend(tx: Transaction, instance_id: str, reason: str | None) -> None:
    """Pause an instance that is not paused."""
    status = live_status(tx, instance_id)
    if status is Status.SUSPENDED:
        raise WrongStatusError(instance_id, status, "running")
    tx.post(instance_id, Kind.SUSPEND, events.suspended(tx.now_us, reason))


def resume(tx: Transaction, instance_id: str, reason: str | None) -> None:
    """Let a paused instance go on."""
    status = live_status(tx, instance_id)
    if status is not Status.SUSPENDED:
        raise WrongStatusError(instance_id, status, "suspended")
    tx.post(instance_id, Kind.RESUME, events.resumed(tx.now_us, reason))


def terminate(tx: Transaction, instance_id: str, output: str | None) -> None:
    """End an instance. What it has started goes on: the extension hands no termination down."""
    live_status(tx, instance_id)
    if _awaits_its_start(tx, instance_id):
        _finish_unstarted(tx, instance_id, output)
        return
    tx.post(instance_id, Kind.TERMINATE, events.terminated(tx.now_us, output))


def _awaits_its_start(tx: Transaction, instance_id: str) -> bool:
    """Whether an instance is scheduled for later: no turn of it will come to see a message before that."""
    row = tx.run("message.scheduled_start", instance_id, tx.now_us).fetchone()
    return row is not None


def _finish_unstarted(tx: Transaction, instance_id: str, output: str | None) -> None:
    tx.run("instance.finish", Status.TERMINATED, output, tx.now_us, tx.now_us, instance_id)
    tx.run("message.delete_all", instance_id)
    tx.effects.changed.append(instance_id)
    tx.effects.dropped.append(instance_id)


@dataclass(frozen=True, slots=True)
class Restart:
    """What a restart needs: the finished instance, and the id to run it under (None: its own)."""

    instance_id: str
    new_id: str | None


def restart(tx: Transaction, asked: Restart) -> str:
    """Start a finished instance again with its name, input, version and tags; return the id it runs under."""
    archive.restore(tx, asked.instance_id)
    head = read_head(tx, asked.instance_id)
    if not head.status.is_terminal:
        raise WrongStatusError(asked.instance_id, head.status, "terminal")
    again = Start(asked.new_id or head.id, head.name, head.version, head.input, head.tags)
    start(tx, again)
    return again.instance_id


def rewind(tx: Transaction, instance_id: str, reason: str | None) -> None:
    """Take a failed instance back to before its failure; its next turn rewrites the history."""
    head = read_head(tx, instance_id)
    if head.status is not Status.FAILED:
        raise WrongStatusError(instance_id, head.status, "failed")
    reopen(tx, instance_id, reason)


def reopen(
    tx: Transaction, instance_id: str, reason: str | None, parent_execution_id: str | None = None
) -> None:
    """Put a failed instance back into service and ask its orchestrator to rewrite its history."""
    archive.restore(tx, instance_id)
    tx.run("instance.reopen", tx.now_us, instance_id)
    tx.post(instance_id, Kind.REWIND, events.rewound(tx.now_us, reason, parent_execution_id))
    tx.effects.changed.append(instance_id)
    tx.effects.dropped.append(instance_id)


def read_head(tx: Transaction, instance_id: str) -> Head:
    """Return what a turn needs of an instance."""
    row = tx.run("instance.head", instance_id).fetchone()
    if row is None:
        raise InstanceNotFoundError(instance_id)
    return head_from(instance_id, row)


def head_from(instance_id: str, row: tuple[object, ...]) -> Head:
    """Return the head that a row of `instance.head` describes."""
    execution_id, turn, name, version, status, input_, tags, *parent = row
    return Head(
        id=instance_id,
        execution_id=execution_id,  # type: ignore[arg-type] # the schema's types
        turn=turn,  # type: ignore[arg-type] # as above
        name=name,  # type: ignore[arg-type] # as above
        version=version,  # type: ignore[arg-type] # as above
        status=Status(status),  # type: ignore[arg-type] # as above
        input=input_,  # type: ignore[arg-type] # as above
        tags=tags,  # type: ignore[arg-type] # as above
        parent=None if parent[0] is None else Parent(*parent),  # type: ignore[arg-type] # as above
    )


def purge(tx: Transaction, instance_id: str, *, finished_only: bool) -> int:
    """Erase an instance, not what it has started; return how many."""
    status = status_of(tx, instance_id)
    if status is None or (finished_only and not status.is_terminal):
        return 0
    erase(tx, instance_id)
    tx.run("activity.delete_all", instance_id)
    return 1


def erase(tx: Transaction, instance_id: str) -> None:
    """Forget an instance; activities of it that still run find nobody to report to."""
    for name in ("archive.delete", "instance.delete", "history.delete", "message.delete_all"):
        tx.run(name, instance_id)
    tx.effects.dropped.append(instance_id)


def commit_turn(tx: Transaction, head: Head, taken: Sequence[Message], turn: Turn, lane: Lane) -> None:
    """Store all that a turn changed.

    Args:
        tx: The transaction.
        head: The instance as the turn found it.
        taken: The messages that the turn took.
        turn: The changes.
        lane: The queue that the turn came from; its activities wait in the same.

    Raises:
        FencedError: The instance has moved on since.
    """
    _store_outcome(tx, head, turn)
    if not _is_over(turn):
        tx.run_many("message.delete", [(message.seq,) for message in taken])
    send_messages(tx, head, turn, lane)


def send_messages(tx: Transaction, head: Head, turn: Turn, lane: Lane) -> None:
    """Store all that a turn asks others for."""
    execution_id = head.execution_id
    for task in turn.tasks:
        seq = tx.next_seq()
        tx.run("activity.insert", seq, head.id, execution_id, task.task_id, task.name, task.input, lane)
        tx.effects.tasks.append((seq, lane))
    for post in turn.posts:
        tx.post(post.target, post.kind, post.events, execution_id=post.execution_id, due_us=post.due_us)
    for child in turn.children:
        _start_child(tx, child)


def _store_outcome(tx: Transaction, head: Head, turn: Turn) -> None:
    match turn.outcome:
        case None:
            _advance(tx, head, turn, Ended(None, None), completed_us=None)
        case Ended() as ended:
            _advance(tx, head, turn, ended, completed_us=tx.now_us)
            if _is_over(turn):
                tx.run("message.delete_all", head.id)
        case Renewed() as renewed:
            _renew(tx, head, turn, renewed)
        case Rewound() as rewound:
            _rewind(tx, head, rewound)
        case _:
            assert_never(turn.outcome)
    if turn.status is not head.status:
        tx.effects.changed.append(head.id)


def _is_over(turn: Turn) -> bool:
    """Whether the instance takes no more messages; a failed one keeps them for a rewind."""
    return isinstance(turn.outcome, Ended) and turn.status is not Status.FAILED


def _advance(tx: Transaction, head: Head, turn: Turn, ended: Ended, *, completed_us: int | None) -> None:
    changed = tx.run(
        "turn.advance",
        *(turn.status, ended.output, turn.custom_status, ended.failure, tx.now_us, completed_us),
        *(head.id, head.execution_id, head.turn),
    )
    _fence(changed.rowcount, head)
    tx.run("history.append", head.id, head.turn, events.packed(turn.history))


def _renew(tx: Transaction, head: Head, turn: Turn, renewed: Renewed) -> None:
    """Begin a new execution; answers to the old one have nobody to go to, external events stay."""
    changed = tx.run(
        "turn.renew",
        *(renewed.execution_id, renewed.version, renewed.input, turn.custom_status, tx.now_us),
        *(head.id, head.execution_id, head.turn),
    )
    _fence(changed.rowcount, head)
    tx.run("history.delete", head.id)
    tx.run("message.delete_execution", head.id, head.execution_id)
    tx.post(head.id, Kind.START, renewed.begin, execution_id=renewed.execution_id)
    # An instance that goes round for ever is not new: it must not give way to those that are.
    tx.effects.wake[-1] = (head.id, Lane.GOING)


def _rewind(tx: Transaction, head: Head, rewound: Rewound) -> None:
    """Go on under a new execution id; what the failed one was still owed is owed to it."""
    changed = tx.run("turn.rewind", rewound.execution_id, tx.now_us, head.id, head.execution_id, head.turn)
    _fence(changed.rowcount, head)
    tx.run("history.delete", head.id)
    tx.run("history.append", head.id, 0, events.packed(rewound.history))
    tx.run("message.move_execution", rewound.execution_id, head.id, head.execution_id)
    tx.run("activity.move_execution", rewound.execution_id, head.id, head.execution_id)
    tx.post(head.id, Kind.WAKE, b"", execution_id=rewound.execution_id)
    for child in rewound.children:
        _take_back(tx, child, rewound)


def _take_back(tx: Transaction, child: Start, rewound: Rewound) -> None:
    """Let a rewound parent get the end of this child: rewind a failed one, start a purged one again."""
    status = status_of(tx, child.instance_id)
    if status is None:
        start(tx, child)
        return
    assert child.parent is not None  # noqa: S101 - a child has one
    tx.run("instance.adopt", rewound.execution_id, child.instance_id, child.parent.instance_id)
    if status is Status.FAILED:
        reopen(tx, child.instance_id, rewound.reason, rewound.execution_id)
    elif status.is_terminal:
        _report_again(tx, child, status)
    else:
        tx.effects.dropped.append(child.instance_id)


def _report_again(tx: Transaction, child: Start, status: Status) -> None:
    """Send a rewound parent the result of a child that had ended before the rewind."""
    assert child.parent is not None  # noqa: S101 - a child has one
    archive.restore(tx, child.instance_id)
    output, failure = tx.run("instance.result", child.instance_id).fetchone()
    body = events.child_finished(tx.now_us, child.parent.task_id, status, output, failure)
    tx.post(child.parent.instance_id, Kind.RESULT, body, execution_id=child.parent.execution_id)


def _start_child(tx: Transaction, child: Start) -> None:
    assert child.parent is not None  # noqa: S101 - a child has one
    try:
        start(tx, child)
    except InstanceExistsError as refused:
        if read_head(tx, child.instance_id).parent == child.parent:
            return  # the same turn has started it before, and was not stored
        body = events.child_refused(tx.now_us, child.parent.task_id, str(refused))
        tx.post(child.parent.instance_id, Kind.RESULT, body, execution_id=child.parent.execution_id)


def _fence(changed: int, head: Head) -> None:
    if changed != 1:
        raise FencedError(f"turn {head.turn} of execution {head.execution_id} of '{head.id}' was overtaken")


def commit_activity(tx: Transaction, seq: int, report: Callable[[int, int], bytes]) -> None:
    """Store an activity's result: the task goes, its orchestration gets the event.

    Args:
        tx: The transaction.
        seq: The activity's number.
        report: Makes the framed result event from (now in microseconds, task id).

    Raises:
        FencedError: Its result is stored already, or its instance was purged.
    """
    row = tx.run("activity.take", seq).fetchone()
    if row is None:
        raise FencedError(f"activity {seq} has reported before")
    instance_id, execution_id, task_id = row
    tx.post(instance_id, Kind.RESULT, report(tx.now_us, task_id), execution_id=execution_id)
