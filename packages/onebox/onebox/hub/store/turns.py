"""The transaction that ends an orchestrator's turn, and the one that ends an activity."""

from collections.abc import Callable, Sequence
from typing import assert_never

from onebox.hub import events
from onebox.hub.errors import Fenced, InstanceExists, InstanceFinished, InstanceNotFound
from onebox.hub.model import Head, Kind, Lane, Message, Start, Status
from onebox.hub.store import instances
from onebox.hub.store.transaction import Transaction
from onebox.hub.turn import Ended, Renewed, Rewound, Turn


def commit_turn(tx: Transaction, head: Head, taken: Sequence[Message], turn: Turn, lane: Lane) -> None:
    """Store all that a turn changed.

    Args:
        tx: The transaction.
        head: The instance as the turn found it.
        taken: The messages that the turn took.
        turn: The changes.
        lane: The queue that the turn came from; its activities wait in the same.

    Raises:
        Fenced: The instance has moved on since.
    """
    tx.run_many("message.delete", [(message.seq,) for message in taken])
    _store_outcome(tx, head, turn)
    execution_id = head.execution_id
    for task in turn.tasks:
        seq = tx.next_seq()
        tx.run("activity.insert", seq, head.id, execution_id, task.task_id, task.name, task.input, lane)
        tx.effects.tasks.append((seq, lane))
    for post in turn.posts:
        tx.post(post.target, post.kind, post.events, execution_id=post.execution_id, due_us=post.due_us)
    for child in turn.children:
        _start_child(tx, child)
    for instance_id, reason, recurse in turn.terminations:
        _terminate_other(tx, instance_id, reason, recurse=recurse)
    if isinstance(turn.outcome, Ended) and turn.outcome.recurse:
        # Again, though the request has done so: this very turn may have started more.
        instances.terminate_below(tx, head.id, turn.outcome.output)


def _store_outcome(tx: Transaction, head: Head, turn: Turn) -> None:
    match turn.outcome:
        case None:
            _advance(tx, head, turn, Ended(None, None), completed_us=None)
        case Ended() as ended:
            _advance(tx, head, turn, ended, completed_us=tx.now_us)
            if turn.status is not Status.FAILED:
                tx.run("message.delete_all", head.id)
        case Renewed() as renewed:
            _renew(tx, head, turn, renewed)
        case Rewound() as rewound:
            _rewind(tx, head, rewound)
        case _:
            assert_never(turn.outcome)
    if turn.status is not head.status:
        tx.effects.changed.append(head.id)


def _advance(tx: Transaction, head: Head, turn: Turn, ended: Ended, *, completed_us: int | None) -> None:
    changed = tx.run(
        "turn.advance",
        *(turn.status, ended.output, turn.custom_status, ended.failure, tx.now_us, completed_us),
        *(head.id, head.execution_id, head.turn),
    )
    _fence(changed.rowcount, head)
    tx.run("history.append", head.id, head.turn, turn.history)


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
    tx.run("history.append", head.id, 0, rewound.history)
    tx.run("message.move_execution", rewound.execution_id, head.id, head.execution_id)
    tx.run("activity.move_execution", rewound.execution_id, head.id, head.execution_id)
    tx.post(head.id, Kind.WAKE, b"", execution_id=rewound.execution_id)
    for child in rewound.children:
        _take_back(tx, child, rewound)


def _take_back(tx: Transaction, child: Start, rewound: Rewound) -> None:
    """See that a rewound parent hears of this child: rewind a failed one, start a purged one again."""
    status = instances.status_of(tx, child.instance_id)
    if status is None:
        instances.start(tx, child)
        return
    assert child.parent is not None  # noqa: S101 - a child has one
    tx.run("instance.adopt", rewound.execution_id, child.instance_id, child.parent.instance_id)
    if status is Status.FAILED:
        instances.reopen(tx, child.instance_id, rewound.reason, rewound.execution_id)
    elif status.is_terminal:
        _report_again(tx, child, status)
    else:
        tx.effects.dropped.append(child.instance_id)


def _report_again(tx: Transaction, child: Start, status: Status) -> None:
    """Tell a rewound parent how a child ended that had ended before the rewind."""
    assert child.parent is not None  # noqa: S101 - a child has one
    output, failure = tx.run("instance.result", child.instance_id).fetchone()
    body = events.child_finished(tx.now_us, child.parent.task_id, status, output, failure)
    tx.post(child.parent.instance_id, Kind.RESULT, body, execution_id=child.parent.execution_id)


def _start_child(tx: Transaction, child: Start) -> None:
    assert child.parent is not None  # noqa: S101 - a child has one
    try:
        instances.start(tx, child)
    except InstanceExists as refused:
        body = events.child_refused(tx.now_us, child.parent.task_id, str(refused))
        tx.post(child.parent.instance_id, Kind.RESULT, body, execution_id=child.parent.execution_id)


def _terminate_other(tx: Transaction, instance_id: str, reason: str | None, *, recurse: bool) -> None:
    try:
        instances.terminate(tx, instance_id, reason, recursive=recurse)
    except (InstanceNotFound, InstanceFinished):
        return  # there is nothing to end


def _fence(changed: int, head: Head) -> None:
    if changed != 1:
        raise Fenced(f"turn {head.turn} of execution {head.execution_id} of '{head.id}' was overtaken")


def commit_activity(tx: Transaction, seq: int, report: Callable[[int, int], bytes]) -> None:
    """Store an activity's result: the task goes, its orchestration hears of it.

    Args:
        tx: The transaction.
        seq: The activity's number.
        report: Makes the framed result event from (now in microseconds, task id).

    Raises:
        Fenced: Its result is stored already, or its instance was purged.
    """
    row = tx.run("activity.take", seq).fetchone()
    if row is None:
        raise Fenced(f"activity {seq} has reported before")
    instance_id, execution_id, task_id = row
    tx.post(instance_id, Kind.RESULT, report(tx.now_us, task_id), execution_id=execution_id)
