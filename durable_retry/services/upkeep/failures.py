"""Orchestrations of this engine that failed or were terminated; the timer `watch` looks once a minute.

    an operation failed before its first attempt   started anew, `MOST_RESTARTS` times
    an operation failed                            dead letter --> its key completed, its end reported
                                                   --> history purged, when that is seen
    an operation was terminated                    its key completed, as cancelled, and its end reported
    a batch, saga, bulk action or release failed   started anew where its history began: what was done since
                                                   is repeated without effect; in the end a dead letter

Timers of their own start outboxes and retention anew, and a call by an orchestration of the app fails
there. What a person terminated through the platform, other than an operation, stays so.

An orchestrator ends in a dead letter whatever happens inside it. It fails where it cannot run: a history that
does not fit the code, a limit of the platform. Then nobody would see the operation again. A person may
terminate an orchestration through the platform, instead of cancelling the operation.
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import batched
from typing import Any, Final

from azure.core.exceptions import AzureError
from durabletask.client import OrchestrationStatus
from durabletask.internal import orchestrator_service_pb2 as pb

from durable_retry import clock
from durable_retry.engine.base.instants import to_rfc3339
from durable_retry.engine.base.names import (
    BATCH,
    BULK_ACTION,
    ENDED_EVENT,
    FORM,
    OPERATION,
    RELEASE_WAITING,
    REPLAY,
    SAGA,
    STARTED_OPERATION,
    Category,
    DeadLetterReason,
)
from durable_retry.engine.base.text import cut_text
from durable_retry.engine.operations.completion import (
    Completion,
    unreadable_completion,
    unreadable_document,
    written_operation,
)
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.operations.status import STEPS_RUN
from durable_retry.errors import InstanceEndedError, TaskHubUnavailableError
from durable_retry.settings.configuration import function_name
from durable_retry.stores.dead_letters.records import keep_message, keep_operation, keep_unreadable
from durable_retry.stores.instances import Instance
from durable_retry.stores.operations import index as operation_index
from durable_retry.stores.operations.key_record import complete_record, expire_record, read_record
from durable_retry.stores.operations.status import (
    MOST_RESTARTS,
    document_of,
    is_started_anew,
    operation_of,
    restarts_of,
)
from durable_retry.stores.storage import rounds
from durable_retry.stores.task_hub import ID_PREFIX, Selection, TaskHub

RUN_SECONDS: Final = 20.0
"""How long one run looks; in a large task hub the next run goes on from there."""

TERMINATED_WITHIN: Final = timedelta(hours=1)
"""Terminated instances stay in the task hub for days; only those that ended within this time are checked."""

_GIVEN_UP_WITHIN: Final = timedelta(minutes=10)
"""An instance that was started anew in vain stays in the task hub for days. By then it has its dead letter:
upkeep made the last of its starts, a moment before it failed."""

_AT_ONCE: Final = 16

_DETAIL_CHARS: Final = 500

_PREFIXES: Final = (ID_PREFIX, "batch-", "saga-", "replay-", "bulk-", "release-")
"""What the ids of the instances begin with that are looked for."""

_OPERATIONS: Final = (OPERATION, STARTED_OPERATION)
_STARTED_ANEW: Final = (BATCH, SAGA, REPLAY, BULK_ACTION, RELEASE_WAITING)

_PLACE: Final = "ended-badly"

_log = logging.getLogger(__name__)


class Recovery(StrEnum):
    """What was done about an orchestration that failed or was terminated."""

    STARTED_ANEW = "started anew"
    DEAD_LETTER = "made dead letters"
    CANCELLED = "completed as cancelled"
    PURGED = "purged"
    NONE = "left as they are"


async def recover(hub: TaskHub, now: datetime, seconds: float = RUN_SECONDS) -> Counter[Recovery]:
    """Look for orchestrations that failed or were terminated lately, and do what follows.

    Azure Storage has no index of states: the server reads the rows of all instances, and returns those few.
    In a hub with very many the time is up before the end, and the next run goes on there.

    Args:
        seconds: When to stop; the next run goes on.

    Raises:
        TaskHubUnavailableError: The task hub did not answer; the next run goes on.
        azure.core.exceptions.AzureError: Storage did not.
    """
    until = clock.monotonic_seconds() + seconds
    place = (await rounds.read_round(operation_index.TABLE, _PLACE)).after
    done: Counter[Recovery] = Counter()
    following = place
    while following == place or (following != rounds.FIRST and clock.monotonic_seconds() < until):
        found, following = await _page_of_failed(hub, following)
        for some in batched(found, _AT_ONCE, strict=False):
            done.update(await asyncio.gather(*(_recover_instance(hub, state, now) for state in some)))
        if following == rounds.FIRST:
            break
    if following != place:
        await rounds.write_round(operation_index.TABLE, rounds.Round(following), _PLACE)
    return done


async def _page_of_failed(hub: TaskHub, after: str) -> tuple[Sequence[pb.OrchestrationState], str]:
    """Return instances that failed or were terminated, and where the next page begins."""
    number, _, token = ("0", "", "") if after == rounds.FIRST else after.partition("|")
    statuses = (OrchestrationStatus.FAILED, OrchestrationStatus.TERMINATED)
    wanted = Selection(runtime_statuses=statuses, prefix=_PREFIXES[int(number)])
    page = await hub.instance_page(wanted, token or None)
    if page.following is not None:
        return page.instances, f"{number}|{page.following}"
    following = int(number) + 1
    return page.instances, f"{following}|" if following < len(_PREFIXES) else rounds.FIRST


async def _recover_instance(hub: TaskHub, state: pb.OrchestrationState, now: datetime) -> Recovery:
    """Do what follows for one instance; an error of one does not stop the others."""
    has_failed = OrchestrationStatus(state.orchestrationStatus) is OrchestrationStatus.FAILED
    was_lately = state.lastUpdatedTimestamp.ToDatetime(tzinfo=UTC) >= now - TERMINATED_WITHIN
    try:
        if state.name in map(function_name, _OPERATIONS):
            if has_failed:
                return await _recover_failed(hub, state.instanceId, now)
            return await _complete_terminated(hub, state.instanceId, now) if was_lately else Recovery.NONE
        for name in _STARTED_ANEW:
            if has_failed and state.name == function_name(name):
                return await _start_anew(hub, name, state.instanceId, now)
    except (TaskHubUnavailableError, AzureError):
        raise
    except Exception:  # noqa: BLE001 - one bad instance must not stop the others for ever
        _log.exception("the end of %s cannot be followed up", state.instanceId)
    return Recovery.NONE


async def _recover_failed(hub: TaskHub, operation_id: str, now: datetime) -> Recovery:
    instance = await hub.read_instance(operation_id)
    if instance is None or instance.runtime_status is not OrchestrationStatus.FAILED:
        return Recovery.NONE
    if is_started_anew(instance):
        return await _started_anew(hub, STARTED_OPERATION, instance)
    kept = await keep_failed(instance, now)
    record = await read_record(hub, operation_id)
    if record is not None and record.document is not None:
        # Without its history, retention may not find it.
        await expire_record(hub, operation_id, max(now, record.expires_at or now))
        await hub.purge_instance(operation_id)
        return Recovery.PURGED
    await complete_record(hub, operation_id, kept.completion)
    await _report_end(hub, instance, kept.completion)
    return Recovery.DEAD_LETTER


async def _started_anew(hub: TaskHub, name: str, instance: Instance) -> Recovery:
    """Start an orchestration under its id with its input. Its side effects keep their names."""
    given = instance.input | {"form": FORM, "restarts": restarts_of(instance) + 1}
    _log.warning("%s is started anew; its orchestration failed: %s", instance.instance_id, instance.failure)
    await hub.start_instance(name, instance.instance_id, given, again=True)
    return Recovery.STARTED_ANEW


async def _start_anew(hub: TaskHub, name: str, instance_id: str, now: datetime) -> Recovery:
    instance = await hub.read_instance(instance_id)
    if instance is None or instance.runtime_status is not OrchestrationStatus.FAILED:
        return Recovery.NONE
    if instance.input and restarts_of(instance) < MOST_RESTARTS:
        return await _started_anew(hub, name, instance)
    if instance.updated_at < now - _GIVEN_UP_WITHIN:
        return Recovery.NONE
    await keep_message(
        json.dumps(instance.input),
        source=name,
        message_id=instance_id,
        reason=DeadLetterReason.AMBIGUOUS_OUTCOME,
        detail=_failure_detail(instance),
        now=instance.updated_at,
    )
    return Recovery.DEAD_LETTER


async def _complete_terminated(hub: TaskHub, operation_id: str, now: datetime) -> Recovery:
    record = await read_record(hub, operation_id)
    if record is not None and record.document is not None:
        return Recovery.NONE
    instance = await hub.read_instance(operation_id)
    if instance is None or instance.runtime_status is not OrchestrationStatus.TERMINATED:
        return Recovery.NONE
    completion = completion_of(instance, now)
    await complete_record(hub, operation_id, completion)
    await _report_end(hub, instance, completion)
    return Recovery.CANCELLED


def completion_of(instance: Instance, now: datetime) -> dict[str, Any]:
    """Return what completes the record of the key of an operation that has ended."""
    document = document_of(instance)
    try:
        return _completion_of(operation_of(instance), document, now)
    except (KeyError, TypeError, ValueError):
        return unreadable_completion(instance.input, document, now)


async def _report_end(hub: TaskHub, instance: Instance, completion: dict[str, Any]) -> None:
    """Report the end to the batch, the saga or the call that waits for the operation."""
    waiting, ended = (
        written_operation(instance.input).get("reports_to"),
        Completion.of(completion["document"]),
    )
    if isinstance(waiting, str) and ended is not None:
        with suppress(InstanceEndedError):
            await hub.raise_event(waiting, ENDED_EVENT, ended.to_json())


def _completion_of(operation: OperationInput, document: dict[str, Any], now: datetime) -> dict[str, Any]:
    return {
        "owner": operation.owner,
        "fingerprint": operation.fingerprint,
        "document": document,
        "now": to_rfc3339(now),
        "ttl_seconds": operation.ttl_seconds,
        "trace": operation.to_json()["trace"],
    }


@dataclass(frozen=True, slots=True)
class KeptFailure:
    """A failed operation whose dead letter is kept. `completion` completes the record of its key."""

    dead_letter_id: str
    completion: dict[str, Any]


async def keep_failed(instance: Instance, now: datetime) -> KeptFailure:
    """Keep the dead letter of an operation whose orchestration failed. Idempotent."""
    detail = _failure_detail(instance)
    try:
        operation, document = operation_of(instance), document_of(instance)
    except (KeyError, TypeError, ValueError):
        return await _keep_unreadable(instance, detail)
    letter = {
        # What the dependency did until then is not known.
        "category": Category.AMBIGUOUS.value,
        "reason": DeadLetterReason.AMBIGUOUS_OUTCOME.value,
        "detail": detail,
    }
    # Before its first turn a document shows the first run, which is not the run that would have been.
    steps_run = document.get(STEPS_RUN, 1)
    operation = replace(operation, steps_run=None if steps_run == 1 else steps_run)
    entry = {"operation": operation.to_json(), "attempts": document["attempts"], **letter}
    dead_letter_id = await keep_operation(entry, now)
    ended = document | {"dead_letter": {"id": dead_letter_id, **letter}}
    return KeptFailure(dead_letter_id, _completion_of(operation, ended, now))


def _failure_detail(instance: Instance) -> str:
    restarts = restarts_of(instance)
    times = f" {restarts + 1} times" if restarts else ""
    return cut_text(f"the orchestration failed{times}: {instance.failure}", _DETAIL_CHARS)


async def _keep_unreadable(instance: Instance, detail: str) -> KeptFailure:
    operation_id, at = instance.instance_id, instance.created_at
    dead_letter_id = await keep_unreadable(operation_id, instance.input, detail, at)
    document = unreadable_document(
        operation_id, instance.input, at, dead_letter_id=dead_letter_id, detail=detail
    )
    return KeptFailure(dead_letter_id, unreadable_completion(instance.input, document, at))
