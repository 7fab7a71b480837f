"""Carries out one work item: a turn, a batch or an activity. Loads, invokes, commits, in that order."""

import base64
import logging
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import dropwhile

import durabletask.internal.orchestrator_service_pb2 as pb

from onebox.clock import Clock
from onebox.hub import events
from onebox.hub.batch import Batch, conclude, failed_result, gather, request_for
from onebox.hub.cache import HistoryCache, Live
from onebox.hub.errors import Fenced
from onebox.hub.faults import FaultPoint, FaultPoints
from onebox.hub.frames import request_bytes
from onebox.hub.instants import now_us
from onebox.hub.invoker import InvocationFailed, Invoker
from onebox.hub.model import Head, Lane, Message, Status, Task
from onebox.hub.response import failed_response, interpret
from onebox.hub.settings import HubSettings
from onebox.hub.store.entities import commit_batch
from onebox.hub.store.reading import Reader
from onebox.hub.store.turns import commit_activity, commit_turn
from onebox.hub.store.writer import Writer
from onebox.hub.turn import Ended, Renewed, Rewound, Turn, choose
from onebox.hub.versioning import VersionFailure

_LOGGER = logging.getLogger(__name__)
_SDK_FRAME = 'durabletask/worker.py"'  # the frames of its loop, through which every orchestrator is entered


class Workers:
    """The three kinds of work.

    A handler that raises leaves the store as it was: the item is tried again. `Fenced` is not an error:
    somebody else has done the work.

    Args:
        retry: Called with a key that must be looked at once more.
    """

    def __init__(
        self,
        *,
        reader: Reader,
        writer: Writer,
        invoker: Invoker,
        clock: Clock,
        settings: HubSettings,
        faults: FaultPoints,
        retry: Callable[[str], None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._invoker = invoker
        self._clock = clock
        self._settings = settings
        self._faults = faults
        self._retry = retry
        self.cache = HistoryCache(settings.cache_bytes)

    async def turn(self, instance_id: str, lane: Lane) -> None:
        """Let an orchestrator see what has come for it."""
        self._faults(FaultPoint.TURN_TAKEN)
        live = self.cache.get(instance_id) or self._reader.live(instance_id)
        if live is None or self._must_wait(live.head):
            return
        at_us = now_us(self._clock)
        visible = self._reader.inbox(instance_id, at_us)
        taken = choose(live.head, visible)
        if not taken:
            return
        opening = events.orchestrator_started(at_us)
        response = await self._run_orchestrator(live, [opening, *(message.events for message in taken)])
        self._faults(FaultPoint.TURN_ANSWERED)
        turn = interpret(live.head, taken, opening, response, at_us)
        try:
            await self._writer.commit(lambda tx: commit_turn(tx, live.head, taken, turn, lane))
        except Fenced as overtaken:
            _LOGGER.debug("%s", overtaken)
            self.cache.drop(instance_id)
            self._retry(instance_id)
            return
        self._faults(FaultPoint.TURN_COMMITTED)
        if turn.status is Status.FAILED and isinstance(turn.outcome, Ended):
            _tell_failure(live.head, turn.outcome)
        self._remember(live, turn)
        if len(visible) > len(taken):
            self._retry(instance_id)

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
        request = request_bytes(head.id, head.execution_id, live.chunks, new)
        self._faults(FaultPoint.TURN_LOADED)
        try:
            answer = await self._invoker.orchestrator(head.name, base64.b64encode(request).decode("ascii"))
        except InvocationFailed as failed:
            return failed_response(_details(failed))
        response = pb.OrchestratorResponse()
        response.ParseFromString(base64.b64decode(answer))
        for action in response.actions:
            if action.HasField("createSubOrchestration"):
                self._give_version(action.createSubOrchestration)
        return response

    def _give_version(self, asked: pb.CreateSubOrchestrationAction | pb.StartNewOrchestrationAction) -> None:
        """Fill in what host.json documents for a start that names no version; the SDK itself does not."""
        default = self._settings.versioning.default
        if default is not None and not asked.version.value:
            asked.version.value = default

    def _remember(self, live: Live, turn: Turn) -> None:
        """Bring the cache to where the store is."""
        head = live.head
        match turn.outcome:
            case None:
                if self.cache.get(head.id) is not live:
                    self.cache.put(live)
                self.cache.advance(live, replace(head, turn=head.turn + 1, status=turn.status), turn.history)
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
        self._faults(FaultPoint.BATCH_TAKEN)
        at_us = now_us(self._clock)
        entity = self._reader.entity(entity_id)
        limit = self._settings.max_batch_operations
        visible = self._reader.operations(entity, at_us, limit)
        batch = gather(entity, visible, at_us)
        if batch.is_empty:
            return
        result = await self._run_entity(batch) if batch.operations else None
        self._faults(FaultPoint.BATCH_ANSWERED)
        changes = conclude(batch, result, at_us)
        try:
            await self._writer.commit(lambda tx: commit_batch(tx, changes))
        except Fenced as overtaken:
            _LOGGER.debug("%s", overtaken)
            self._retry(entity_id)
            return
        self._faults(FaultPoint.BATCH_COMMITTED)
        if _has_more(visible, len(changes.done), limit):
            self._retry(entity_id)

    async def _run_entity(self, batch: Batch) -> pb.EntityBatchResult:
        name = batch.entity.id.split("@", 2)[1]
        if name not in {known.lower() for known in self._invoker.entities}:
            unknown = f"Entity function named '{name}' was not registered!"
            return failed_result(batch, events.failure_details("EntityNotRegisteredError", unknown))
        request: bytes = request_for(batch).SerializeToString()
        try:
            answer = await self._invoker.entity(name, base64.b64encode(request).decode("ascii"))
        except InvocationFailed as failed:
            return failed_result(batch, _details(failed))
        result = pb.EntityBatchResult()
        result.ParseFromString(base64.b64decode(answer))
        for action in result.actions:
            if action.HasField("startNewOrchestration"):
                self._give_version(action.startNewOrchestration)
        return result

    async def activity(self, seq: int, _: Lane) -> None:
        """Run an activity and tell its orchestration how it went."""
        self._faults(FaultPoint.ACTIVITY_TAKEN)
        task = self._reader.task(seq)
        if task is None:
            return
        report = await self._run_activity(task)
        self._faults(FaultPoint.ACTIVITY_ANSWERED)
        try:
            await self._writer.commit(lambda tx: commit_activity(tx, seq, report))
        except Fenced as overtaken:
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
        except InvocationFailed as failed:
            details = _details(failed)
            return lambda at_us, task_id: events.task_failed(at_us, task_id, details)
        return lambda at_us, task_id: events.task_completed(at_us, task_id, result)


def _tell_failure(head: Head, ended: Ended) -> None:
    """Log why an orchestration failed: the SDK answers with it, and nobody else would say."""
    failure = pb.TaskFailureDetails.FromString(ended.failure or b"")
    frames = re.split(r'^(?=  File ")', failure.stackTrace.value, flags=re.MULTILINE)
    own = "".join(dropwhile(lambda frame: _SDK_FRAME in frame or not frame.strip(), frames)).rstrip()
    text = f"{failure.errorType}: {failure.errorMessage}" + (f"\n{own}" if own else "")
    _LOGGER.error("orchestration '%s' (%s) failed - %s", head.id, head.name, text)


def _has_more(visible: list[Message], done: int, limit: int) -> bool:
    """Whether the inbox may hold more to do now: it was cut off, or part of it was left and part done."""
    return len(visible) >= limit or 0 < done < len(visible)


def _details(failed: InvocationFailed) -> pb.TaskFailureDetails:
    return events.failure_details(failed.error_type, failed.message, failed.stack_trace)
