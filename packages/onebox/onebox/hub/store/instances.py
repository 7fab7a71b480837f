"""Transactions on whole instances: start, message, terminate, restart, rewind, purge.

Each function runs inside one transaction. `InstanceNotFound` means that no instance has the id,
`InstanceExists` that a start may not replace what is there, `InstanceFinished` that the instance takes no
more messages, `WrongStatus` that the request needs another status. A raised error leaves nothing behind.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from onebox.hub import events
from onebox.hub.errors import InstanceExists, InstanceFinished, InstanceNotFound, WrongStatus
from onebox.hub.model import TERMINAL, Head, Kind, Parent, Start, Status
from onebox.hub.store.transaction import Transaction
from onebox.hub.tags import tags_from


def start(tx: Transaction, asked: Start) -> str:
    """Create an instance, in place of a replaceable one; return its execution id."""
    status = status_of(tx, asked.instance_id)
    if status is not None:
        if status not in (TERMINAL if asked.replaceable is None else asked.replaceable):
            raise InstanceExists(asked.instance_id, status)
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
        raise InstanceNotFound(instance_id)
    if status.is_terminal:
        raise InstanceFinished(instance_id, status)
    return status


def raise_event(tx: Transaction, instance_id: str, name: str, data: str | None) -> None:
    """Hand an external event to an instance, whether or not it waits for one."""
    live_status(tx, instance_id)
    tx.post(instance_id, Kind.EVENT, events.event_raised(tx.now_us, name, data))


def suspend(tx: Transaction, instance_id: str, reason: str | None) -> None:
    """Pause an instance; pausing a paused one changes nothing."""
    if live_status(tx, instance_id) is not Status.SUSPENDED:
        tx.post(instance_id, Kind.SUSPEND, events.suspended(tx.now_us, reason))


def resume(tx: Transaction, instance_id: str, reason: str | None) -> None:
    """Let a paused instance go on."""
    live_status(tx, instance_id)
    tx.post(instance_id, Kind.RESUME, events.resumed(tx.now_us, reason))


def terminate(tx: Transaction, instance_id: str, output: str | None, *, recursive: bool) -> None:
    """End an instance, and with `recursive` all that it has started, directly or not."""
    live_status(tx, instance_id)
    _terminate_one(tx, instance_id, output, recurse=recursive)
    if recursive:
        terminate_below(tx, instance_id, output)


def terminate_below(tx: Transaction, instance_id: str, output: str | None) -> None:
    """End all live sub-orchestrations below an instance."""
    for child_id, _ in descendants(tx, instance_id, lambda status: not status.is_terminal):
        _terminate_one(tx, child_id, output, recurse=True)


def _terminate_one(tx: Transaction, instance_id: str, output: str | None, *, recurse: bool) -> None:
    if _awaits_its_start(tx, instance_id):
        _finish_unstarted(tx, instance_id, output)
        return
    tx.post(instance_id, Kind.TERMINATE, events.terminated(tx.now_us, output, recurse=recurse))


def _awaits_its_start(tx: Transaction, instance_id: str) -> bool:
    """Whether an instance is scheduled for later: no turn of it will come to see a message before that."""
    row = tx.run("message.scheduled_start", instance_id, tx.now_us).fetchone()
    return row is not None


def _finish_unstarted(tx: Transaction, instance_id: str, output: str | None) -> None:
    tx.run("instance.finish", Status.TERMINATED, output, tx.now_us, tx.now_us, instance_id)
    tx.run("message.delete_all", instance_id)
    tx.effects.changed.append(instance_id)
    tx.effects.dropped.append(instance_id)


def descendants(
    tx: Transaction, instance_id: str, wanted: Callable[[Status], bool]
) -> list[tuple[str, Status]]:
    """Return the sub-orchestrations below an instance whose status is wanted, parents first."""
    found: list[tuple[str, Status]] = []
    seen = {instance_id}
    level = [instance_id]
    while level:
        rows = [row for parent in level for row in tx.run("instance.children", parent)]
        fresh = [(child, Status(status)) for child, status in rows if child not in seen]
        seen.update(child for child, _ in fresh)
        found += [(child, status) for child, status in fresh if wanted(status)]
        level = [child for child, _ in fresh]
    return found


@dataclass(frozen=True, slots=True)
class Restart:
    """What a restart needs: the finished instance, and the id to run it under (None: its own)."""

    instance_id: str
    new_id: str | None


def restart(tx: Transaction, asked: Restart) -> str:
    """Start a finished instance again with its name, input, version and tags; return the id it runs under."""
    head = read_head(tx, asked.instance_id)
    if not head.status.is_terminal:
        raise WrongStatus(asked.instance_id, head.status, "terminal")
    again = Start(asked.new_id or head.id, head.name, head.version, head.input, head.tags)
    start(tx, again)
    return again.instance_id


def rewind(tx: Transaction, instance_id: str, reason: str | None) -> None:
    """Take a failed instance back to before its failure; its next turn rewrites the history."""
    head = read_head(tx, instance_id)
    if head.status is not Status.FAILED:
        raise WrongStatus(instance_id, head.status, "failed")
    reopen(tx, instance_id, reason)


def reopen(
    tx: Transaction, instance_id: str, reason: str | None, parent_execution_id: str | None = None
) -> None:
    """Put a failed instance back into service and ask its orchestrator to rewrite its history."""
    tx.run("instance.reopen", tx.now_us, instance_id)
    tx.post(instance_id, Kind.REWIND, events.rewound(tx.now_us, reason, parent_execution_id))
    tx.effects.changed.append(instance_id)
    tx.effects.dropped.append(instance_id)


def read_head(tx: Transaction, instance_id: str) -> Head:
    """Return what a turn needs of an instance."""
    row = tx.run("instance.head", instance_id).fetchone()
    if row is None:
        raise InstanceNotFound(instance_id)
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


def purge(tx: Transaction, instance_id: str, *, recursive: bool) -> int:
    """Erase a finished instance, and with `recursive` the finished ones below; return how many."""
    status = status_of(tx, instance_id)
    if status is None or not status.is_terminal:
        return 0
    below = descendants(tx, instance_id, lambda found: found.is_terminal) if recursive else []
    for doomed in (instance_id, *(child for child, _ in below)):
        erase(tx, doomed)
        tx.run("activity.delete_all", doomed)
    return 1 + len(below)


def erase(tx: Transaction, instance_id: str) -> None:
    """Forget an instance; activities of it that still run find nobody to report to."""
    for name in ("instance.delete", "history.delete", "message.delete_all"):
        tx.run(name, instance_id)
    tx.effects.dropped.append(instance_id)
