"""Sagas in the task hub: the input has the constant fields, the custom status how each step ended.

Functions that take the hub raise `TaskHubUnavailableError` where it does not answer.

A restart is written here before it is started. The task hub starts an orchestration in place of any that has
ended, also when the start comes late and another restart was written meanwhile. So a run does what is written
here, not what its input says:

    table `Workflows`, PK <saga id>
    RK `restart`                 the latest restart: who wrote it, and how far it is
    RK `restart-<token>-0000`    the saga as that restart is to run it, in parts
    RK `restart-<token>.end-0000`    the saga as it ended

    written ──a run begins with it──> begun ──the run ends──> ended

A restart replaces the one that was read before the saga was read, on condition that this one is unchanged: no
other was written since, and no run began with it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any, Final

from durabletask.client import OrchestrationStatus

from durable_retry.base.answers import read_or
from durable_retry.base.json_forms import JsonShape
from durable_retry.features.workflows.names import SAGA
from durable_retry.features.workflows.rules.document import SagaDocument, saga_document
from durable_retry.features.workflows.rules.shapes import Saga, SagaState, SagaStep
from durable_retry.hub.instance_lists import TABLE
from durable_retry.hub.instances import Instance
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.operations.completion import Completion
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.operations.status import MAX_BYTES, size_bytes
from durable_retry.storage import contents, tables


def saga_progress(saga: Saga) -> dict[str, Any]:
    """Return how the steps ended, so that it fits a custom status: without error texts where these do not."""
    endings = [[_ending_document(step.done), _ending_document(step.undone)] for step in saga.steps]
    if size_bytes(endings) > MAX_BYTES:
        endings = [[_shortest(ending) for ending in pair] for pair in endings]
    return {"endings": endings}


async def find_saga(hub: TaskHub, saga_id: str) -> SagaDocument | None:
    """Return a saga's document, or None when there is none."""
    instance = await find_instance(hub, saga_id)
    return None if instance is None else document_of_saga(instance)


async def find_instance(hub: TaskHub, saga_id: str) -> Instance | None:
    """Return a saga's instance, or None when there is none."""
    return await hub.read_instance(saga_id) if saga_id.startswith(f"{SAGA}-") else None


def document_of_saga(instance: Instance) -> SagaDocument:
    """Return the document of a saga's instance; with `unreadable` where not all of it can be read."""
    return read_or(partial(_saga_document, instance), partial(_unreadable_saga, instance))


def _unreadable_saga(instance: Instance, reason: str) -> SagaDocument:
    is_over = instance.runtime_status not in {OrchestrationStatus.RUNNING, OrchestrationStatus.PENDING}
    return SagaDocument(
        saga_id=instance.instance_id,
        status=SagaState.STOPPED if is_over else SagaState.RUNNING,
        created_at=instance.created_at,
        updated_at=instance.updated_at,
        unreadable=reason,
    )


def _saga_document(instance: Instance) -> SagaDocument:
    if instance.unreadable is not None:
        raise ValueError(instance.unreadable)
    if instance.output is not None and instance.runtime_status is OrchestrationStatus.COMPLETED:
        return SagaDocument.read(instance.output)
    document = saga_document(saga_of(instance), instance.updated_at)
    if instance.runtime_status in {OrchestrationStatus.TERMINATED, OrchestrationStatus.FAILED}:
        return document.model_copy(update={"status": SagaState.STOPPED})
    return document


def saga_of(instance: Instance) -> Saga:
    """Return a saga as far as its instance shows it: without the values of results.

    Raises:
        ValueError: It cannot be read; or another of `answers.CAUSES`.
    """
    return _with_completions(Saga.from_json(instance.input["saga"]), instance.custom_status)


def fingerprint_of_saga(instance: Instance) -> str:
    """Return a saga's fingerprint: equal for equal submissions."""
    return str(instance.input["saga"]["fingerprint"])


def _with_completions(saga: Saga, progress: Mapping[str, Any] | None) -> Saga:
    if not progress:
        return saga
    steps = zip(saga.steps, progress["endings"], strict=True)
    return saga.with_steps(tuple(_with_completion(step, *pair) for step, pair in steps))


def _with_completion(step: SagaStep, done: Any, undone: Any) -> SagaStep:
    return step.ended(_completion_of(step.operation, done), _completion_of(step.compensation, undone))


def _completion_of(operation: OperationInput | None, ending: Any) -> Completion | None:
    if ending is None or operation is None:
        return None
    return Completion.from_json({"operation_id": operation.operation_id, **ending})


def _ending_document(completion: Completion | None) -> dict[str, Any] | None:
    """Return an end without its values: the next steps have them, and no document shows them."""
    return None if completion is None else replace(completion, values=None).to_json()


def _shortest(ending: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return an end without its texts, what the step says already, and what is empty."""
    if ending is None:
        return None
    return {name: value for name, value in ending.items() if value and name not in _LEFT_OUT}


_LEFT_OUT: Final = frozenset({"operation_id", "error", "dead_letter_id"})


_KEY: Final = "restart"
_PART_CHARS: Final = 300_000
"""A row holds 1 MiB of UTF-16."""


class RestartStage(StrEnum):
    """How far a restart is."""

    WRITTEN = "written"
    BEGUN = "begun"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestRestart(JsonShape):
    """The latest restart of a saga; `token` is of the request that wrote it."""

    token: str
    stage: RestartStage = RestartStage.WRITTEN


class RestartedElsewhereError(Exception):
    """Another restart of the saga was written, or began, since it was read."""


async def latest_restart(saga_id: str) -> LatestRestart | None:
    """Return the latest restart of a saga; None before the first."""
    row = await tables.read(TABLE, saga_id, _KEY)
    return None if row is None else _restart_of_row(row)


async def write_restart(saga: Saga, token: str, before: LatestRestart | None) -> None:
    """Write a restart in place of the one that was read. Idempotent.

    Raises:
        RestartedElsewhereError: That is not the latest one any more.
    """
    written = LatestRestart(token=token)

    def rule(stored: LatestRestart | None) -> LatestRestart:
        if stored is not None and stored.token == token:
            return stored
        if stored != before:
            raise RestartedElsewhereError(saga.saga_id)
        return written

    # The parts first: a run begins with whatever the row names, and must find all of it.
    await _write_parts(saga.saga_id, written, saga.to_json())
    await _change_restart(saga.saga_id, rule)


async def begin_restart(saga_id: str, token: str) -> LatestRestart:
    """Note that a run begins that a restart started; return the restart that it is to run. Idempotent.

    Where the latest one has ended, its run is over.
    """

    def rule(stored: LatestRestart | None) -> LatestRestart:
        latest = stored or LatestRestart(token=token)
        return replace(latest, stage=RestartStage.BEGUN) if latest.stage is RestartStage.WRITTEN else latest

    return await _change_restart(saga_id, rule)


async def read_restart(saga_id: str, restart: LatestRestart) -> dict[str, Any]:
    """Return the JSON form of the saga as a restart is to run it, or as it ended."""
    prefix = f"{_KEY}-{_name_of(restart)}-"
    page = await tables.rows_between(TABLE, saga_id, after=prefix, before=f"{prefix}~")
    saga: dict[str, Any] = json.loads("".join(contents.unpacked("saga", row) for row in page.rows))
    return saga


async def end_restart(saga_id: str, token: str, saga: dict[str, Any]) -> None:
    """Keep how the run of a restart ended; `saga` is the JSON form of a `Saga`. Idempotent."""
    ended = LatestRestart(token=token, stage=RestartStage.ENDED)

    def rule(stored: LatestRestart | None) -> LatestRestart:
        # A restart that was written since is still to run: the end of the run before it is not its end.
        return ended if stored is None or stored.token == token else stored

    await _write_parts(saga_id, ended, saga)
    await _change_restart(saga_id, rule)


async def _change_restart(
    saga_id: str, rule: Callable[[LatestRestart | None], LatestRestart]
) -> LatestRestart:
    keys = {"PartitionKey": saga_id, "RowKey": _KEY}
    return await tables.change_row(
        TABLE, keys, rule, read=_restart_of_row, write=lambda restart: restart.to_json()
    )


def _restart_of_row(row: tables.Row) -> LatestRestart:
    return LatestRestart.from_json({"token": row["token"], "stage": row["stage"]})


async def _write_parts(saga_id: str, restart: LatestRestart, saga: dict[str, Any]) -> None:
    text = json.dumps(saga)
    for number, at in enumerate(range(0, len(text), _PART_CHARS)):
        keys = {"PartitionKey": saga_id, "RowKey": f"{_KEY}-{_name_of(restart)}-{number:04d}"}
        await tables.merge(TABLE, keys | contents.packed("saga", text[at : at + _PART_CHARS]))


def _name_of(restart: LatestRestart) -> str:
    return f"{restart.token}.end" if restart.stage is RestartStage.ENDED else restart.token
