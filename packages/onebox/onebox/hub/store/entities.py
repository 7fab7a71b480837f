"""Transactions on entities: a batch, a signal, and the housekeeping."""

import logging
import uuid

from onebox.hub.batch import BatchChanges, signal_frame
from onebox.hub.errors import Fenced, InstanceExists
from onebox.hub.model import Entity, Kind, Lane
from onebox.hub.store import instances
from onebox.hub.store.transaction import Transaction

_LOGGER = logging.getLogger(__name__)


def commit_batch(tx: Transaction, changes: BatchChanges) -> None:
    """Store all that a batch changed.

    Raises:
        Fenced: Some of its messages are gone: the batch has run before, or the entity was purged.
    """
    done = tx.run_many("message.delete", [(message.seq,) for message in changes.done])
    if changes.done and done != len(changes.done):
        raise Fenced(f"a batch of '{changes.entity.id}' was overtaken")
    entity = changes.entity
    tx.run("entity.put", entity.id, entity.state, entity.lock_owner, entity.lock_section, entity.modified_us)
    for post in changes.posts:
        tx.post(post.target, post.kind, post.events, execution_id=post.execution_id, due_us=post.due_us)
    for asked in changes.starts:
        try:
            instances.start(tx, asked)
        except InstanceExists as refused:
            _LOGGER.warning("entity '%s' could not start an orchestration: %s", entity.id, refused)


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


def read_entity(tx: Transaction, entity_id: str) -> Entity:
    """Return an entity; one without a row is one without a state."""
    row = tx.run("entity.get", entity_id).fetchone()
    return Entity(entity_id) if row is None else Entity(*row)


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
