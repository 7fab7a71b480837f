"""Orchestrations of this engine that failed or were terminated; the timer `watch` looks once a minute.

The pages that it reads also have those that have not ended. Features look at these: `Plugin.look`.

    an operation, before its first attempt   started anew, `MOST_RESTARTS` times
    an operation                             dead letter --> its key completed, its end reported
                                             --> history purged, once a run finds the key completed
    a batch, a saga or a release             started anew where its history began, as often: what was done
                                             since is repeated without effect; in the end a dead letter
    a bulk action                            the same when it failed; a dead letter when it was terminated

Timers start outboxes and retention anew. A call fails in the orchestration of the app that made it.

An orchestrator ends in a dead letter whatever happens inside it. It fails where it cannot run: a history that
does not fit the code, a limit of the platform. Then nobody would see the operation again. A person may
terminate an orchestration through the platform: the accepted operation would be lost. A bulk action that a
person terminated does not go on: it would send again what was to be stopped, and the rest is still open.

A purge by id does not check the instance. Between our check and the purge, a person may replay the
operation's dead letter: the purge erases that run, which was answered with 202, and we start it again.
"""

import json
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any, Final

from azure.core.exceptions import AzureError
from durabletask.client import OrchestrationStatus
from durabletask.internal import orchestrator_service_pb2 as pb

from durable_retry.base.answers import CAUSES
from durable_retry.base.errors import InstanceEndedError, TaskHubUnavailableError
from durable_retry.base.names import (
    ENDED_EVENT,
    OPERATION,
    STARTED_OPERATION,
    DeadLetterReason,
)
from durable_retry.base.trace_context import trace_in
from durable_retry.dead_letters.actions import start_if_lost
from durable_retry.dead_letters.records import keep_message, keep_operation, keep_unreadable
from durable_retry.hub.instances import ENDED_BADLY, Instance
from durable_retry.hub.orchestrations import orchestrations, watched_names
from durable_retry.hub.task_hub import Selection, TaskHub
from durable_retry.operations.entities import complete_record, expire_record, read_record
from durable_retry.operations.lone_records import let_answer_alone
from durable_retry.operations.status import (
    MOST_RESTARTS,
    dead_letter_of_failure,
    document_of,
    failure_detail,
    is_started_anew,
    operation_of,
    restarts_of,
)
from durable_retry.plugins import plugins
from durable_retry.rules.dead_letters.record import of_message
from durable_retry.rules.facts import OperationEnded
from durable_retry.rules.operations.completion import (
    Completion,
    unreadable_completion,
    unreadable_document,
    written_operation,
)
from durable_retry.rules.operations.keys import KeyCompletion
from durable_retry.rules.operations.status import STEPS_RUN
from durable_retry.runtime.concurrency import raise_first, settle_all
from durable_retry.runtime.deferred import imported
from durable_retry.settings.configuration import function_name
from durable_retry.storage import rounds
from durable_retry.telemetry.facts import report


async def purge_operation(
    hub: TaskHub,
    instance: Instance,
    *,
    completed_before: datetime | None = None,
    dead_letter_id: str | None = None,
) -> bool:
    """Purge the history of an operation that has ended, and start again a replay that was purged with it.

    Args:
        instance: As it was read just before.
        completed_before: Only if it completed and was started before this instant; None for any end.
        dead_letter_id: With which it ended; None where its output says so.

    Returns:
        Whether it was purged.
    """
    if not await hub.purge_instance(instance, completed_before):
        return False
    letter = (instance.output or {}).get("dead_letter")
    kept_id = letter.get("id") if isinstance(letter, dict) else None
    if dead_letter_id or kept_id:
        await start_if_lost(hub, str(dead_letter_id or kept_id))
    return True


RUN_SECONDS: Final = 20.0
"""How long one run looks; in a large task hub the next run goes on from there."""

# An orchestration that is not started anew stays in the task hub for days. By then it has its dead letter.
_GIVEN_UP_WITHIN: Final = timedelta(minutes=10)
_AT_ONCE: Final = 16

_MOST_MOVED: Final = 500
"""A run ends after the page with which it has nudged so many that stand still; the next run goes on there."""

_SEEN: Final = ENDED_BADLY | {OrchestrationStatus.RUNNING, OrchestrationStatus.PENDING}
_OPERATIONS: Final = (OPERATION, STARTED_OPERATION)

_log = logging.getLogger(__name__)


class Recovery(StrEnum):
    """What was done about an orchestration that failed or was terminated."""

    STARTED_ANEW = "started anew"
    DEAD_LETTER = "made dead letters"
    PURGED = "purged"
    NONE = "left as they are"


async def recover(hub: TaskHub, now: datetime, seconds: float = RUN_SECONDS) -> Counter[str]:
    """Look for orchestrations that failed, were terminated or stand still, and do what follows.

    Returns:
        How often each thing was done: a `Recovery`, or a text of a feature's look.

    Azure Storage has no index of states: the server reads the rows of all instances, and returns those few.
    In a hub with very many the time is up before the end, and the next run goes on there.
    """
    done, errors = Counter[str](), list[Exception]()
    looks = [imported(plugin.look)(hub, now) for plugin in plugins() if plugin.look]
    recover_one = partial(_recover_instance, hub, now, looks)
    # Operations first: they are most of what is there.
    watched = (kind for kind in orchestrations().values() if kind.is_watched)
    looked_for = (kind for kind in watched if not (kind.is_idle and imported(kind.is_idle)(hub, now)))
    prefixes = tuple(dict.fromkeys(kind.prefix for kind in looked_for))
    read = partial(hub.page_of_prefixes, Selection(runtime_statuses=_SEEN), prefixes)
    async for instances in rounds.pages_from_place("ended-badly", read, seconds):
        recovered, failed = await settle_all(recover_one, instances, _AT_ONCE)
        done.update(recovered)
        errors += failed
        if done.total() - sum(done[recovery] for recovery in Recovery) >= _MOST_MOVED:
            break  # The app has more to do than it can: nudging all of them would be work on top.
        if dead_letters := recovered.count(Recovery.DEAD_LETTER):
            _log.error("%d orchestrations that ended badly: dead letters", dead_letters)
    for look in looks:
        await look.end()
    raise_first(errors)
    return done


async def _recover_instance(
    hub: TaskHub, now: datetime, looks: Sequence[Any], state: pb.OrchestrationState
) -> str:
    # An error of one instance must not stop the others.
    name = next((name for name in watched_names() if state.name == function_name(name)), None)
    try:
        if OrchestrationStatus(state.orchestrationStatus) not in ENDED_BADLY:
            for look in looks if name is not None else ():
                if moved := await look.move_on(name, state):
                    return str(moved)
            return Recovery.NONE
        instance = None if name is None else await hub.read_instance(state.instanceId)
        if name is None or instance is None or instance.runtime_status not in ENDED_BADLY:
            return Recovery.NONE
        if name in _OPERATIONS:
            return await _recover_operation(hub, instance, now)
        is_restarted = orchestrations()[name].is_restarted
        return await _recover_part(hub, name, instance, now) if is_restarted else Recovery.NONE
    except (TaskHubUnavailableError, AzureError):
        raise
    except Exception:  # noqa: BLE001 - one bad instance must not stop the others for ever
        _log.exception("the end of %s cannot be followed up", state.instanceId)
    return Recovery.NONE


async def _recover_operation(hub: TaskHub, instance: Instance, now: datetime) -> Recovery:
    if is_started_anew(instance):
        return await _start_anew(hub, STARTED_OPERATION, instance)
    failure = await keep_failed(instance, now)
    record = await read_record(hub, instance.instance_id)
    if record is not None and record.run >= failure.completion.run:
        if not await let_answer_alone(record.expires_at, now):
            return Recovery.NONE
        # Retention finds records by their histories: this one must expire by itself.
        await expire_record(hub, instance.instance_id, max(now, record.expires_at))
        await purge_operation(hub, instance, dead_letter_id=failure.dead_letter_id)
        return Recovery.PURGED
    # Generated keys get a record here, too: the history will be purged, and the record shows the end.
    await complete_record(hub, instance.instance_id, failure.completion)
    await _report_end(hub, instance, failure.completion)
    return Recovery.DEAD_LETTER


async def _start_anew(hub: TaskHub, name: str, instance: Instance) -> Recovery:
    # With the same id, from which the names of its side effects are derived.
    input_ = instance.input | {"restarts": restarts_of(instance) + 1}
    _log.warning("%s is started anew: %s", instance.instance_id, failure_detail(instance))
    await hub.start_instance(name, instance.instance_id, input_, again=True)
    return Recovery.STARTED_ANEW


async def _recover_part(hub: TaskHub, name: str, instance: Instance, now: datetime) -> Recovery:
    is_terminated = instance.runtime_status is OrchestrationStatus.TERMINATED
    is_stopped = is_terminated and orchestrations()[name].stays_terminated
    if instance.input and not is_stopped and restarts_of(instance) < MOST_RESTARTS:
        return await _start_anew(hub, name, instance)
    if instance.updated_at < now - _GIVEN_UP_WITHIN:
        return Recovery.NONE
    letter = of_message(
        json.dumps(instance.input),
        source=name,
        message_id=instance.instance_id,
        reason=DeadLetterReason.AMBIGUOUS_OUTCOME,
        detail=failure_detail(instance),
        now=instance.updated_at,
    )
    await keep_message(letter)
    return Recovery.DEAD_LETTER


def completion_of(instance: Instance, now: datetime) -> KeyCompletion:
    """Return what completes the record of the key of an operation that has ended."""
    document = document_of(instance)
    try:
        return operation_of(instance).completion(document, now)
    except CAUSES:
        return unreadable_completion(instance.input, document, now)


def completion_of_ended(instance: Instance) -> KeyCompletion | None:
    """Return what completes the record of a caller's key; None for a generated key, and before the end."""
    if instance.runtime_status is not OrchestrationStatus.COMPLETED or instance.output is None:
        return None
    if written_operation(instance.input).get("key_is_generated") is True:
        return None
    return completion_of(instance, instance.updated_at)


async def _report_end(hub: TaskHub, instance: Instance, completion: KeyCompletion) -> None:
    written = written_operation(instance.input)
    trace = trace_in(written.get("trace"))
    report(OperationEnded(completion.document, trace))
    # The batch, the saga or the call waits for the operation.
    waiting, ended = written.get("reports_to"), Completion.of(completion.document)
    if isinstance(waiting, str) and ended is not None:
        with suppress(InstanceEndedError):
            await hub.raise_event(waiting, ENDED_EVENT, ended.to_json())


@dataclass(frozen=True, slots=True)
class KeptFailure:
    """An operation that ended badly, with its dead letter. `completion` completes the record of its key."""

    dead_letter_id: str
    completion: KeyCompletion


async def keep_failed(instance: Instance, now: datetime) -> KeptFailure:
    """Keep the dead letter of an operation whose orchestration ended badly. Idempotent."""
    letter = dead_letter_of_failure(instance)
    try:
        operation, document = operation_of(instance), document_of(instance)
    except CAUSES:
        detail, at = letter["detail"], instance.created_at
        dead_letter_id = await keep_unreadable(instance.instance_id, instance.input, detail, at)
        document = unreadable_document(
            instance.instance_id, instance.input, at, dead_letter_id=dead_letter_id, detail=detail
        )
        return KeptFailure(dead_letter_id, unreadable_completion(instance.input, document, at))
    operation = replace(operation, steps_run=document.get(STEPS_RUN), acted_before=True)
    entry = {"operation": operation.to_json(), "attempts": document["attempts"], **letter}
    del entry["id"]  # `keep_operation` derives it from the entry.
    dead_letter_id = await keep_operation(entry, now)
    ended = document | {"dead_letter": letter | {"id": dead_letter_id}}
    return KeptFailure(dead_letter_id, operation.completion(ended, now))
