"""Replay one dead letter, requested by a person, a bulk action or another feature.

    store an intent ──> status `replayed` ──> start the operation ──> delete the intent
                              └── could not be started: status `open` again

After a crash the intent is left, and `start_left_over` does what is missing: a dead letter with the status
`replayed` was started, or will be.

The operation runs again under its own id and key.
"""

import asyncio
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from durable_retry.base.errors import (
    KeyTakenError,
    NothingToReplayError,
    StillRunningError,
    TaskHubUnavailableError,
)
from durable_retry.base.names import OperationState
from durable_retry.base.text import kept_bytes
from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.dead_letters.records import (
    Purpose,
    begin_move,
    existing_dead_letter,
    finish_change,
    move_dead_letter,
)
from durable_retry.features.replay.rules import (
    Prepared,
    ReplayBody,
    changes_between,
    is_masked,
    not_replayed,
    replayed_operation,
    whole_edits,
)
from durable_retry.hub.instances import Instance
from durable_retry.hub.task_hub import TaskHub
from durable_retry.intake.intake import intake
from durable_retry.operations.actions import KeyReused, submit
from durable_retry.operations.entities import read_record
from durable_retry.plugins import hook, plugins
from durable_retry.rules.dead_letters.document import StartedReplay
from durable_retry.rules.dead_letters.record import (
    KeptDeadLetter,
    Replay,
    Status,
    WrongStatusError,
    replayed,
)
from durable_retry.rules.facts import SubmissionOutcome, Submitted
from durable_retry.rules.intake import Arrival
from durable_retry.rules.operations.completion import written_operation
from durable_retry.rules.operations.keys import is_live
from durable_retry.rules.operations.operation import OperationInput, fingerprint_of, without_credentials
from durable_retry.runtime import clock
from durable_retry.runtime.deferred import imported
from durable_retry.settings.configuration import app_settings, masking_of, targets
from durable_retry.settings.intake import places
from durable_retry.telemetry import spans
from durable_retry.telemetry.facts import report
from durable_retry.telemetry.spans import OUTCOME

# A dead letter is written before its operation ends, so a quick replay can meet the end of the last run.
_WAITS_SECONDS: Final = (0.0, 0.1, 0.3, 0.9)
_KEY_TAKEN: Final = "its key belongs to another request by now"


@dataclass(frozen=True, slots=True)
class Case(ABC):
    """The replay of one dead letter; what it holds decides how that is prepared and started."""

    record: KeptDeadLetter
    operation: OperationInput  # what was prepared
    requested_at: datetime
    from_step: str | None = None  # the remembered step with which it begins; None for all that is left

    @staticmethod
    @abstractmethod
    def prepare(record: KeptDeadLetter, edits: ReplayBody, now: datetime) -> Prepared:
        """Return what the replay of a dead letter starts; raises as `prepare`."""

    @abstractmethod
    async def start(self, hub: TaskHub) -> None:
        """Start it, unless an earlier call got that far.

        Raises:
            TaskHubUnavailableError: It is not known whether it was started.
        """

    async def was_started(self, hub: TaskHub) -> bool:
        """Return whether it was started, whatever has become of it since."""
        return _replays_the_same(await hub.read_instance(self.operation.operation_id), self.operation)


class _OperationCase(Case):
    """An operation that has failed runs again."""

    @staticmethod
    def prepare(record: KeptDeadLetter, edits: ReplayBody, now: datetime) -> Prepared:
        prepared = replayed_operation(record, edits, targets(), now, new_suffix=uuid.uuid4().hex)
        for plugin in plugins():
            if (check := plugin.replay_checks.get(record.source or "")) is not None:
                imported(check)(record, prepared.operation)
        return prepared

    async def start(self, hub: TaskHub) -> None:
        operation = self.operation
        if self.from_step is not None and operation.steps_run is not None and (module := hook("handlers")):
            forget = imported(f"{module}.records:forget_steps_from")
            await forget(operation.operation_id, operation.steps_run, self.from_step)
        if await _is_done_or_under_way(hub, operation):
            return
        with spans.submission(operation) as (span, traced):
            is_ours = await _start_or_wait(hub, traced)
            outcome = SubmissionOutcome.STARTED if is_ours else SubmissionOutcome.REPLAYED
            span.set_attribute(OUTCOME, outcome.value)
            report(Submitted(operation, outcome))
        if not is_ours:
            raise StillRunningError("its operation is running")


class _MessageCase(Case):
    """A message that became no operation is read again."""

    @staticmethod
    def prepare(record: KeptDeadLetter, edits: ReplayBody, now: datetime) -> Prepared:  # noqa: ARG004
        _refuse_edits(edits, edits.edits - {"message"}, "a message")
        before = record.message or ""
        after = before if edits.message is None else edits.message
        if edits.message is None and record.is_cut:
            kept = f"only the first {len(before)} of {record.message_chars} characters were kept"
            raise InvalidInputError([Problem("/message", f"{kept}: replay it with the whole message")])
        arrival = Arrival(
            source=record.source,
            body=kept_bytes(after),
            # As at its first delivery, so that the key is the same.
            place=places().get(record.source, ""),
            native_id=record.key,
        )
        operation = replace(intake().operation_of(arrival), replay_of=record.id)
        return Prepared(operation, changes_between({"message": before}, {"message": after}))

    async def start(self, hub: TaskHub) -> None:
        if isinstance(await submit(hub, self.operation), KeyReused):
            raise KeyTakenError(_KEY_TAKEN)


class _PluginCase(Case):
    """What a dead letter is about belongs to a plugin, which starts it again as it is."""

    @staticmethod
    def prepare(record: KeptDeadLetter, edits: ReplayBody, now: datetime) -> Prepared:  # noqa: ARG004
        _refuse_edits(edits, edits.edits, imported(f"{_plugin_module(record)}:CONTENT"))
        return Prepared(OperationInput.from_json(record.operation or {}), ())

    async def start(self, hub: TaskHub) -> None:
        await imported(f"{_plugin_module(self.record)}:start")(hub, self.record)

    async def was_started(self, hub: TaskHub) -> bool:  # noqa: ARG002 - the plugin's own row says so
        was_started = imported(f"{_plugin_module(self.record)}:was_started")
        return bool(await was_started(self.record, self.requested_at))


def _plugin_module(record: KeptDeadLetter) -> str:
    modules = (plugin.replays.get(record.reason or "") for plugin in plugins())
    return next(filter(None, modules), "")


def _case_of(record: KeptDeadLetter) -> type[Case]:
    if record.operation is None:
        return _MessageCase
    return _PluginCase if _plugin_module(record) else _OperationCase


def prepare(record: KeptDeadLetter, edits: ReplayBody, now: datetime) -> Prepared:
    """Return the operation that a replay starts, validated like a new one.

    Raises:
        UnknownTargetError: Its dependency or handler is not known.
        InvalidInputError: With everything else that is wrong with it, such as a mask left in what was edited.
    """
    masking, most_bytes = masking_of(record.dependency), app_settings().max_body_bytes
    whole = whole_edits(edits, record, masking, most_bytes=most_bytes)
    return _case_of(record).prepare(record, whole, now)


async def _start_or_wait(hub: TaskHub, operation: OperationInput) -> bool:
    for seconds in _WAITS_SECONDS:
        await asyncio.sleep(seconds)
        if await hub.start_operation(operation, again=True):
            return True
        if _replays_the_same(await hub.read_instance(operation.operation_id), operation):
            return True
    return False


def _replays_the_same(instance: Instance | None, operation: OperationInput) -> bool:
    if instance is None:
        return False
    replay_of: Any = written_operation(instance.input).get("replay_of")
    return bool(replay_of == operation.replay_of)


async def _is_done_or_under_way(hub: TaskHub, operation: OperationInput) -> bool:
    """Whether the operation is not to start: it replays the same dead letter, or its key has succeeded.

    Its instance says so, and where that is gone the record of its key.
    """
    instance = await hub.read_instance(operation.operation_id)
    if _replays_the_same(instance, operation):
        return True
    if instance is not None:
        ended: Mapping[str, Any] = instance.output or {}
        written = written_operation(instance.input)
        is_same = not written or fingerprint_of(written) == fingerprint_of(operation.to_json())
    else:
        record = await read_record(hub, operation.operation_id)
        if record is None or not is_live(record, clock.now()):
            return False
        ended, is_same = record.document, record.stands_for(fingerprint_of(operation.to_json()))
    if not is_same:
        raise KeyTakenError(_KEY_TAKEN)
    return ended.get("status") in _ENDED_OTHERWISE


_ENDED_OTHERWISE: Final = (OperationState.SUCCEEDED, OperationState.CANCELLED)


def _refuse_edits(edits: ReplayBody, names: frozenset[str], content: str) -> None:
    """Refuse what only the replay of an operation takes, and edited parts that this dead letter lacks."""
    wrong = dict.fromkeys(names, f"cannot be edited: this dead letter has {content}")
    for name in ("downstream_key", "from_step"):
        if getattr(edits, name) is not None:
            wrong[name] = "can be chosen for an operation only"
    if wrong:
        raise InvalidInputError(Problem(f"/{name}", wrong[name]) for name in sorted(wrong))


_NOT_STARTED: Final = (TaskHubUnavailableError, StillRunningError, KeyTakenError, NothingToReplayError)


async def replay_dead_letter(
    hub: TaskHub,
    dead_letter_id: str,
    edits: ReplayBody,
    now: datetime,
    *,
    action_id: str | None = None,
    by: str | None = None,
    change: Callable[[OperationInput], OperationInput] | None = None,
) -> StartedReplay:
    """Replay an open dead letter.

    Args:
        action_id: The bulk action that this is part of; None for a single one.
        change: Changes what the replay starts; None leaves it as it is.

    Raises:
        WrongStatusError: It is replayed or archived.
        InvalidInputError: The edited request, or the kept one under today's configuration, is not valid.
        KeyTakenError: Its key stands for another request by now.
        StorageRefusedError: Its row has no room for one more replay; it stays open.
        TaskHubUnavailableError: It could not be started, and stays open.
    """
    record = await _open_record(dead_letter_id)
    prepared = prepare(record, edits, now)
    operation = replace(prepared.operation, submitted_by=by)
    operation = operation if change is None else change(operation)
    if edits.from_step is not None:
        await _check_step(operation, edits.from_step)
    started = Replay(
        operation_id=operation.operation_id,
        requested_at=now,
        operation=without_credentials(operation.to_json()),
        note=edits.note,
        changes=prepared.changes,
        action_id=action_id,
        by=by,
        from_step=edits.from_step,
    )
    # The status before the start: a crash in between leaves an intent, from which the start is made up for.
    # The other way round the dead letter would still be open, and somebody would replay it again.
    _, intent = await begin_move(dead_letter_id, lambda kept: replayed(kept, started), Purpose.REPLAY)
    try:
        await _case_of(record)(record, operation, now, edits.from_step).start(hub)
    # Only what surely started nothing. After any other error it may run, so the intent stays.
    except _NOT_STARTED:
        await move_dead_letter(dead_letter_id, not_replayed)
        await finish_change(intent)
        raise
    await finish_change(intent)
    return StartedReplay(operation_id=operation.operation_id, dependency=operation.dependency)


async def replay_unedited(
    hub: TaskHub, dead_letter_id: str, note: str | None, now: datetime, **replay: Any
) -> StartedReplay:
    """Replay one as it was; see `replay_dead_letter`. For features, which import nothing of this one."""
    return await replay_dead_letter(hub, dead_letter_id, ReplayBody(note=note), now, **replay)


async def start_left_over(hub: TaskHub, record: KeptDeadLetter) -> None:
    """Start the latest replay of a dead letter that is replayed, unless it was started.

    Raises:
        TaskHubUnavailableError: It could not be started.
    """
    last = record.replays[-1]
    if last.dead_letter_id is not None:
        return  # It has failed again, and that dead letter may be replayed by now.
    operation = OperationInput.from_json(last.operation)
    replay = _case_of(record)(record, operation, last.requested_at, last.from_step)
    if await replay.was_started(hub):
        return
    try:
        if is_masked(last.operation):
            raise StillRunningError  # noqa: TRY301 - its credentials were never kept: a person starts it again
        await replay.start(hub)
    except (StillRunningError, KeyTakenError, NothingToReplayError):
        await move_dead_letter(record.id, not_replayed)


async def _open_record(dead_letter_id: str) -> KeptDeadLetter:
    record = await existing_dead_letter(dead_letter_id)
    if record.status is not Status.OPEN:
        raise WrongStatusError(record.status)
    return record


async def _check_step(operation: OperationInput, name: str) -> None:
    run, module, names = operation.steps_run, hook("handlers"), list[str]()
    if module and run is not None:
        names = await imported(f"{module}.records:names_of_steps")(operation.operation_id, run)
    if name not in names:
        detail = f"is not remembered: there are {', '.join(names)}" if names else "is not there: none is kept"
        raise InvalidInputError([Problem("/from_step", detail)])
