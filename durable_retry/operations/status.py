"""Operations as clients see them: the status document of one, previews of many.

A document comes from the orchestration, or from the idempotency record once that is gone. Previews read
the custom status only: inputs and outputs are the largest part of an instance. Functions that take the hub
raise `TaskHubUnavailableError` where it does not answer.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from durabletask.client import OrchestrationStatus

from durable_retry.attempt.results import with_stored
from durable_retry.base.answers import CAUSES, marked, read_or, reason_of
from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.masking import MASKED
from durable_retry.base.names import (
    ATTEMPT,
    Category,
    DeadLetterReason,
    OperationState,
)
from durable_retry.base.text import cut_text
from durable_retry.base.trace_context import trace_in
from durable_retry.hub.instances import ENDED_BADLY, Instance
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations.entities import read_record
from durable_retry.plugins import plugins
from durable_retry.rules.operations.completion import unreadable_document, written_run
from durable_retry.rules.operations.keys import is_operation_id
from durable_retry.rules.operations.operation import OperationInput, content_of
from durable_retry.rules.operations.status import checked_document, is_finished, running_document
from durable_retry.rules.operations.waits import waits_of
from durable_retry.runtime import clock
from durable_retry.runtime.deferred import imported
from durable_retry.settings.configuration import app_settings, function_name, masking_of

_DETAIL_CHARS: Final = 500


def dead_letter_of_failure(instance: Instance) -> dict[str, Any]:
    """Return the dead letter of an operation whose orchestration failed or was terminated.

    It has no id until upkeep writes it, which takes up to two minutes.
    """
    return {
        "id": None,
        # What the dependency did until then is not known.
        "category": Category.AMBIGUOUS.value,
        "reason": DeadLetterReason.AMBIGUOUS_OUTCOME.value,
        "detail": failure_detail(instance),
    }


def failure_detail(instance: Instance) -> str:
    """Return how an orchestration that did not complete ended, with the platform's text."""
    is_terminated = instance.runtime_status is OrchestrationStatus.TERMINATED
    ended, restarts = "was terminated" if is_terminated else "failed", restarts_of(instance)
    times = f" {restarts + 1} times" if restarts else ""
    return cut_text(f"the orchestration {ended}{times}: {MASKED.text(instance.failure or '')}", _DETAIL_CHARS)


async def find_status(hub: TaskHub, operation_id: str) -> dict[str, Any] | None:
    """Return an operation's status document, also after its history was purged; None when there is none.

    While the task hub has the history, the document has `request`, or `handler` and `input`, too. They are
    read from the orchestration's input: a copy in the record would be one more write at each end.
    """
    if not is_operation_id(operation_id):
        return None  # Batches, sagas and other orchestrations have ids of another form.
    instance = await hub.read_instance(operation_id)
    if instance is not None and instance.runtime_status not in ENDED_BADLY:
        return await with_parts(whole_document_of(instance))
    # Once upkeep has stored the dead letter of an orchestration that ended badly, the record names it.
    document: Mapping[str, Any] | None = None if instance is None else whole_document_of(instance)
    try:
        record = await read_record(hub, operation_id)
        if record is not None and (instance is None or record.run >= run_of_instance(instance)):
            document = checked_document(record.document)
    except CAUSES as error:
        document = document or _unreadable_record(operation_id, reason_of(error))
    return None if document is None else await with_parts(document)


def run_of_instance(instance: Instance) -> int:
    return written_run(instance.input, instance.created_at)


async def has_ended(hub: TaskHub, operation_id: str) -> bool:
    """Return whether an operation has ended; True also for an unknown one."""
    instance = await hub.read_instance(operation_id)
    return instance is None or is_finished(document_of(instance))


async def with_parts(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a status document with all its waits, its result, and what features add.

    Costs the read of a row for a large result, and what the features read.
    """
    whole = {**document, "result": await with_stored(document["result"])}
    if waits := waits_of(document):
        whole["waits"] = [wait.to_json() for wait in waits]
    for plugin in plugins():
        if plugin.status:
            whole = await imported(plugin.status)(whole)
    return whole


def document_of(instance: Instance) -> dict[str, Any]:
    """Return the status document of an instance; with `unreadable` where not all of it can be read."""
    if instance.output is not None and instance.runtime_status is OrchestrationStatus.COMPLETED:
        return read_or(
            lambda: dict(checked_document(instance.output or {})), partial(_unreadable_instance, instance)
        )
    document = read_or(partial(_unfinished_document, instance), partial(_unreadable_instance, instance))
    if instance.runtime_status in ENDED_BADLY and not is_started_anew(instance):
        return document | {
            "status": OperationState.DEAD_LETTERED.value,
            "dead_letter": dead_letter_of_failure(instance),
            "updated_at": to_rfc3339(instance.updated_at),
            "next_attempt_at": None,
        }
    return document


def _unfinished_document(instance: Instance) -> dict[str, Any]:
    if instance.unreadable is not None:
        raise ValueError(instance.unreadable)
    begun_at = instance.updated_at if instance.runtime_status in ACTIVE else None
    return dict(checked_document(running_document(operation_of(instance), instance.custom_status, begun_at)))


def _unreadable_instance(instance: Instance, reason: str) -> dict[str, Any]:
    document = unreadable_document(
        instance.instance_id,
        instance.input,
        instance.created_at,
        dead_letter_id="",
        detail=f"The orchestration cannot be read: {reason}",
    )
    if instance.runtime_status is not OrchestrationStatus.COMPLETED:
        # The input may still be readable.
        document = read_or(lambda: running_document(operation_of(instance), None), lambda _: document)
    if instance.runtime_status in NOT_ENDED:
        document |= {"status": OperationState.PENDING.value, "dead_letter": None}
    return document | {"updated_at": to_rfc3339(instance.updated_at)} | marked(reason)


def _unreadable_record(operation_id: str, reason: str) -> dict[str, Any]:
    detail = f"The record of its key cannot be read: {reason}"
    document = unreadable_document(operation_id, {}, clock.now(), dead_letter_id="", detail=detail)
    return document | marked(reason)


MOST_RESTARTS: Final = 5
"""How often an orchestration that ended badly is started anew before it becomes a dead letter."""


def restarts_of(instance: Instance) -> int:
    """Return how often upkeep has started the orchestration of an instance anew."""
    restarts = instance.input.get("restarts")
    return restarts if isinstance(restarts, int) else 0


def is_started_anew(instance: Instance) -> bool:
    """Whether upkeep starts anew an operation that ended badly: only one that has sent nothing.

    Its history must be known and show no attempt. A turn that asked for the first attempt may have been lost
    and have decided otherwise when it ran again: the new start has the same run, and finds the marker of that
    attempt. An operation that waited before its first attempt was visible with that status, and stays ended.
    """
    was_seen = instance.custom_status is not None or "history" in instance.input
    was_tried = instance.asked_for is None or function_name(ATTEMPT) in instance.asked_for
    has_ended_badly = instance.runtime_status in ENDED_BADLY
    if was_seen or was_tried or not has_ended_badly or restarts_of(instance) >= MOST_RESTARTS:
        return False
    return read_or(lambda: operation_of(instance) is not None, lambda _: False)


def whole_document_of(instance: Instance) -> dict[str, Any]:
    """Return the status document of an instance with `request`, or `handler` and `input`."""
    try:
        operation = instance.input["operation"]
        content = content_of(operation, masking_of(operation["dependency"])) | _origin_of(operation)
    except CAUSES:
        content = {}  # The document says that the input cannot be read.
    return document_of(instance) | content


def _origin_of(operation: Mapping[str, Any]) -> dict[str, str]:
    """Return who submitted it, what it replays, and its trace, as far as there is any."""
    trace = trace_in(operation.get("trace"))
    names = ("submitted_by", "replay_of")
    submitted = {name: operation[name] for name in names if operation.get(name) is not None}
    if trace is None:
        return submitted
    url = app_settings().trace_url
    link = {} if not url else {"trace_url": url.replace("{trace_id}", trace.trace_id)}
    return {**submitted, "trace_id": trace.trace_id, **link}


def operation_of(instance: Instance) -> OperationInput:
    return OperationInput.from_json(instance.input["operation"])


ACTIVE: Final = frozenset(
    {OrchestrationStatus.RUNNING, OrchestrationStatus.CONTINUED_AS_NEW, OrchestrationStatus.SUSPENDED}
)
"""Task hub statuses of operations that have begun and not ended."""
NOT_ENDED: Final = ACTIVE | {OrchestrationStatus.PENDING}
"""Task hub statuses of operations that have not ended."""
