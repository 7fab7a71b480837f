"""Carries out one work item: a turn, a batch or an activity. Loads, invokes, commits, in that order."""

import functools
import logging
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from itertools import dropwhile
from typing import Any

import durabletask.internal.orchestrator_service_pb2 as pb

from onebox.clock import Clock
from onebox.faults import FaultPoint, FaultPoints
from onebox.hub import events
from onebox.hub.database import Transaction
from onebox.hub.entities import (
    Batch,
    BatchChanges,
    commit_batch,
    conclude,
    conclude_dead,
    failed_result,
    gather,
    lock_owners,
    request_for,
)
from onebox.hub.group import Basis
from onebox.hub.instances import commit_activity, commit_turn
from onebox.hub.invoker import InvocationFailedError, InvocationLostError, Invoker, TurnRequest
from onebox.hub.model import FencedError, Head, Kind, Lane, Message, Status, Task, now_us
from onebox.hub.reading import HistoryCache, Live, Reader
from onebox.hub.settings import HubSettings, VersionFailure
from onebox.hub.turn import Ended, Renewed, Rewound, Turn, choose, failed_response, interpret
from onebox.hub.writer import Writer

_LOGGER = logging.getLogger(__name__)
# The frames of the loops through which every orchestrator is entered: the SDK's, and ours around it.
_LOOP_FRAMES = ('durabletask/worker.py"', 'onebox/worker/executors.py"')


# What DurableTask.Core's `MessageSorter` orders and deduplicates by the timestamps that the Python SDK omits.
_SORTED = frozenset({Kind.OPERATION, Kind.LOCK})


class NotImmediateError(Exception):
    """The work cannot be done while a group of transactions is open."""


@dataclass(frozen=True, slots=True)
class Step:
    """A turn to be taken."""

    live: Live
    taken: list[Message]
    at_us: int
    has_more: bool


class Workers:
    """The three kinds of work.

    A handler that raises leaves the store as it was: the item is tried again. After a `FencedError` nothing
    may be left to do: the item was overtaken.

    Args:
        reader: Sees what is committed.
        inside: Sees what the open group of transactions has written, too.
        retry: Called with a key that must be looked at once more.
    """

    def __init__(
        self,
        *,
        reader: Reader,
        inside: Reader,
        writer: Writer,
        invoker: Invoker,
        clock: Clock,
        settings: HubSettings,
        faults: FaultPoints,
        retry: Callable[[str], None],
    ) -> None:
        self._reader = reader
        self._inside = inside
        self._writer = writer
        self._invoker = invoker
        self._clock = clock
        self._settings = settings
        self._faults = faults
        self._retry = retry
        self.cache = HistoryCache(settings.cache_bytes)

    async def turn(self, instance_id: str, lane: Lane) -> None:
        """Let an orchestrator see what has come for it."""
        step = self._load_turn(self._reader, instance_id, now_us(self._clock))
        if step is not None:
            await self._take_turn(step, lane)

    async def _take_turn(self, step: Step, lane: Lane, basis: Basis | None = None) -> None:
        turn = await self._answer_turn(step)
        await self._store_turn(step, turn, lane, basis)
        self._faults(FaultPoint.TURN_COMMITTED)
        if turn.has_failed:
            log_failure(step.live.head, turn.failure)
        self._remember(step.live, turn)
        if step.has_more:
            self._retry(step.live.head.id)

    async def _store_turn(self, step: Step, turn: Turn, lane: Lane, basis: Basis | None = None) -> None:
        await self._writer.commit_surely(lambda tx: self._write_turn(tx, step, turn, lane), basis)

    def _write_turn(self, tx: Transaction, step: Step, turn: Turn, lane: Lane) -> None:
        commit_turn(tx, step.live.head, step.taken, turn, lane)
        self._faults(FaultPoint.TURN_WRITTEN)

    def follow_turn(
        self, tx: Transaction, instance_id: str, lane: Lane, basis: Basis
    ) -> Coroutine[Any, Any, None] | None:
        """Do the same within a group of transactions that is not committed.

        Returns:
            What remains when the orchestrator has to be waited for; None when all is done.
        """
        step = self._load_turn(self._inside, instance_id, tx.now_us)
        if step is None:
            return None
        if not self._invoker.is_immediate(step.live.head.name, is_entity=False):
            return self._take_turn(step, lane, basis)
        head = step.live.head
        turn = _immediately(self._answer_turn(step))
        self._write_turn(tx, step, turn, lane)
        self._remember(step.live, turn)
        tx.effects.followed.append(instance_id)
        if turn.has_failed:
            tx.effects.failed.append((head, turn.failure))
        if step.has_more:
            tx.effects.wake.append((instance_id, Lane.GOING))
        return None

    def _load_turn(self, reader: Reader, instance_id: str, at_us: int) -> Step | None:
        self._faults(FaultPoint.TURN_TAKEN)
        live = self.cache.get(instance_id) or reader.live(instance_id)
        if live is None or self._must_wait(live.head):
            return None
        visible = reader.inbox(instance_id, at_us)
        taken = choose(live.head, visible)
        return Step(live, taken, at_us, has_more=len(visible) > len(taken)) if taken else None

    async def _answer_turn(self, step: Step) -> Turn:
        opening = events.orchestrator_started(step.at_us)
        new = [opening, *(message.events for message in step.taken)]
        response = await self._run_orchestrator(step.live, new)
        self._faults(FaultPoint.TURN_ANSWERED)
        turn = interpret(step.live.head, step.taken, opening, response, step.at_us)
        if self._settings.drops_entity_messages:
            self._drop_entity_messages(step.live.head, turn)
        return turn

    def _drop_entity_messages(self, head: Head, turn: Turn) -> None:
        """Lose what Azure Storage takes for duplicates; it does not sort signals for later, nor unlocks."""
        kept = [post for post in turn.posts if post.kind not in _SORTED or post.due_us is not None]
        dropped, turn.posts = len(turn.posts) - len(kept), kept
        if dropped:
            _LOGGER.warning(
                "%d messages of '%s' (%s) to entities are dropped, as on Azure Storage: set "
                "extensions.durableTask.entityMessageReorderWindowInMinutes to 0 in host.json",
                *(dropped, head.id, head.name),
            )

    def _must_wait(self, head: Head) -> bool:
        """Whether an instance is left to an app of another version; everything for it stays in its inbox."""
        versioning = self._settings.versioning
        if head.status.is_terminal or versioning.admits(head.version):
            return False
        if versioning.failure is VersionFailure.FAIL:
            return False
        names = (head.id, head.version or "", versioning.match, versioning.default or "")
        _LOGGER.warning("'%s' has version '%s' and waits: host.json runs %s '%s'", *names)
        return True

    async def _run_orchestrator(self, live: Live, new: list[bytes]) -> pb.OrchestratorResponse:
        head = live.head
        if head.name not in self._invoker.orchestrators:
            unknown = f"A '{head.name}' orchestrator was not registered."
            return failed_response(events.failure_details("OrchestratorNotRegisteredError", unknown))
        if not self._settings.versioning.admits(head.version):
            other = "Orchestration version did not comply with Worker Versioning"
            return failed_response(events.failure_details("VersionMismatch", other))
        request = TurnRequest(head.id, head.execution_id, live.chunks, new)
        self._faults(FaultPoint.TURN_LOADED)
        try:
            response = await self._invoker.orchestrator(head.name, request)
        except InvocationFailedError as failed:
            return failed_response(_details(failed))
        for action in response.actions:
            if action.HasField("createSubOrchestration"):
                self._give_version(action.createSubOrchestration)
        return response

    def _give_version(self, asked: pb.CreateSubOrchestrationAction | pb.StartNewOrchestrationAction) -> None:
        """Fill in what host.json documents for a start that names no version; the SDK itself does not."""
        default = self._settings.versioning.default
        if default is not None and not asked.HasField("version"):
            asked.version.value = default

    def _remember(self, live: Live, turn: Turn) -> None:
        """Bring the cache to where the store is."""
        head = live.head
        match turn.outcome:
            case None:
                if self.cache.get(head.id) is not live:
                    self.cache.put(live)
                self.cache.advance(live, head.after_turn(turn.status), turn.history)
            case Renewed() as renewed:
                begun = replace(
                    head,
                    turn=0,
                    status=Status.RUNNING,
                    execution_id=renewed.execution_id,
                    version=renewed.version,
                    input=renewed.input,
                )
                self.cache.put(Live(begun, [], 0))
            case Ended() | Rewound():
                self.cache.drop(head.id)

    async def batch(self, entity_id: str, _: Lane) -> None:
        """Let an entity do what has come for it."""
        batch, visible = self._load_batch(self._reader, entity_id, now_us(self._clock))
        if not batch.is_empty:
            await self._take_batch(batch, visible)

    async def _take_batch(self, batch: Batch, visible: list[Message], basis: Basis | None = None) -> None:
        changes = await self._answer_batch(batch)
        await self._store_batch(changes, basis)
        self._faults(FaultPoint.BATCH_COMMITTED)
        if _has_more(visible, len(changes.done), self._settings.max_batch_operations):
            self._retry(batch.entity.id)

    async def _store_batch(self, changes: BatchChanges, basis: Basis | None = None) -> None:
        await self._writer.commit_surely(lambda tx: self._write_batch(tx, changes), basis)

    def _write_batch(self, tx: Transaction, changes: BatchChanges) -> None:
        commit_batch(tx, changes)
        self._faults(FaultPoint.BATCH_WRITTEN)

    def follow_batch(
        self, tx: Transaction, entity_id: str, _: Lane, basis: Basis
    ) -> Coroutine[Any, Any, None] | None:
        """Do the same within a group of transactions that is not committed.

        Returns:
            What remains when the entity has to be waited for; None when all is done.
        """
        batch, visible = self._load_batch(self._inside, entity_id, tx.now_us)
        if batch.is_empty:
            return None
        if not self._invoker.is_immediate(_name_of(entity_id), is_entity=True):
            return self._take_batch(batch, visible, basis)
        changes = _immediately(self._answer_batch(batch))
        self._write_batch(tx, changes)
        tx.effects.followed.append(entity_id)
        if _has_more(visible, len(changes.done), self._settings.max_batch_operations):
            tx.effects.wake.append((entity_id, Lane.GOING))
        return None

    def _load_batch(self, reader: Reader, entity_id: str, at_us: int) -> tuple[Batch, list[Message]]:
        self._faults(FaultPoint.BATCH_TAKEN)
        entity = reader.entity(entity_id)
        visible = reader.operations(entity, at_us, self._settings.max_batch_operations)
        ended = {each for each in lock_owners(entity, visible) if reader.has_ended(each)}
        return gather(entity, visible, at_us, ended), visible

    async def _answer_batch(self, batch: Batch) -> BatchChanges:
        if not batch.operations:
            self._faults(FaultPoint.BATCH_ANSWERED)
            return conclude(batch, None, batch.at_us)
        try:
            changes = conclude(batch, await self._run_entity(batch), batch.at_us)
        except (InvocationFailedError, InvocationLostError) as ended:
            name = _name_of(batch.entity.id)
            _LOGGER.error(  # noqa: TRY400 - the frames are ours
                "a batch of %d for entity '%s' failed: %s", len(batch.operations), name, ended
            )
            changes = conclude_dead(batch, name)
        self._faults(FaultPoint.BATCH_ANSWERED)
        return changes

    async def _run_entity(self, batch: Batch) -> pb.EntityBatchResult:
        name = _name_of(batch.entity.id)
        if name not in self._entity_names:
            unknown = f"Entity function named '{name}' was not registered!"
            return failed_result(batch, events.failure_details("EntityNotRegisteredError", unknown))
        result = await self._invoker.entity(name, request_for(batch))
        for action in result.actions:
            if action.HasField("startNewOrchestration"):
                self._give_version(action.startNewOrchestration)
        return result

    @functools.cached_property
    def _entity_names(self) -> frozenset[str]:
        return frozenset(map(str.lower, self._invoker.entities))

    async def activity(self, seq: int, _: Lane) -> None:
        """Run an activity and send its orchestration the result."""
        self._faults(FaultPoint.ACTIVITY_TAKEN)
        task = self._reader.task(seq)
        if task is None:
            return
        report = await self._run_activity(task)
        self._faults(FaultPoint.ACTIVITY_ANSWERED)
        try:
            await self._writer.commit_surely(lambda tx: commit_activity(tx, seq, report))
        except FencedError as overtaken:
            _LOGGER.debug("%s", overtaken)
            return
        self._faults(FaultPoint.ACTIVITY_COMMITTED)

    async def _run_activity(self, task: Task) -> Callable[[int, int], bytes]:
        """Return what makes the result event from (now, task id)."""
        if task.name not in self._invoker.activities:
            message = f"Activity function named '{task.name}' was not registered!"
            unknown = events.failure_details("ActivityNotRegisteredError", message)
            return lambda at_us, task_id: events.task_failed(at_us, task_id, unknown)
        try:
            result = await self._invoker.activity(task.name, task.instance_id, task.task_id, task.input)
        except InvocationFailedError as failed:
            details = _details(failed)
            return lambda at_us, task_id: events.task_failed(at_us, task_id, details)
        except InvocationLostError as lost:
            _LOGGER.error(  # noqa: TRY400 - the frames are ours
                "activity '%s' of '%s' failed: %s", task.name, task.instance_id, lost
            )
            dead = events.failure_details(
                "FunctionInvocationFailed", f"Function '{task.name}' failed with an unhandled exception."
            )
            return lambda at_us, task_id: events.task_failed(at_us, task_id, dead)
        return lambda at_us, task_id: events.task_completed(at_us, task_id, result)


def log_failure(head: Head, details: bytes | None) -> None:
    """Log why an orchestration failed: the SDK answers with it, and nobody else would say."""
    failure = pb.TaskFailureDetails.FromString(details or b"")
    frames = re.split(r'^(?=  File ")', failure.stackTrace.value, flags=re.MULTILINE)
    own = "".join(
        dropwhile(lambda frame: any(each in frame for each in _LOOP_FRAMES) or not frame.strip(), frames)
    ).rstrip()
    text = f"{failure.errorType}: {failure.errorMessage}"
    _LOGGER.error("orchestration '%s' (%s) failed - %s", head.id, head.name, text, extra={"frames": own})


def _name_of(entity_id: str) -> str:
    return entity_id.split("@", 2)[1]


def _immediately[T](work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    work.close()
    raise NotImmediateError


def _has_more(visible: list[Message], done: int, limit: int) -> bool:
    """Whether the inbox may hold more to do now: it was cut off, or part of it was left and part done."""
    return len(visible) >= limit or 0 < done < len(visible)


def _details(failed: InvocationFailedError) -> pb.TaskFailureDetails:
    return events.failure_details(failed.error_type, failed.message, failed.stack_trace)
