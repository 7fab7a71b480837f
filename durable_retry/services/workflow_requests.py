"""The operations of a batch or a saga that is submitted: parsed, named and validated like any other."""

import json
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from durable_retry.engine.base.json_forms import TraceContext
from durable_retry.engine.base.names import DeadLetterReason
from durable_retry.engine.base.validation import (
    InvalidInputError,
    Key,
    Problem,
    Strict,
    json_problems,
    pointer_of,
    validated,
)
from durable_retry.engine.operations.idempotency import ScopedKey
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.operations.request import ParsedEnvelope
from durable_retry.engine.workflows import BatchRequest, SagaRequest, Step, StepRequest
from durable_retry.services.submit import Naming, UnknownTargetError, parse, resolve
from durable_retry.settings.app import app_settings
from durable_retry.stores.workflows import Item


@dataclass(frozen=True, slots=True)
class WorkflowRequest:
    """A batch or a saga about to be accepted.

    Attributes:
        id: Derived from the key, and so the same for the same key on every machine.
        source: `batch` or `saga`.
        tenant: Of the caller; "" when there is one tenant.
        trace: The caller's trace context; None when the request is not traced.
    """

    id: str
    source: str
    tenant: str
    trace: TraceContext | None = None

    def resolve(self, document: Any, place: str, now: datetime) -> OperationInput:
        """Return the operation of an item.

        Args:
            document: A body of `POST /api/operations`. A key in it means what it means there; without one the
                key is derived from the workflow's id and the place.
            place: Of the item in the workflow.
            now: Aware UTC instant.

        Raises:
            UnknownTargetError: Its dependency or handler is not configured.
            InvalidInputError: With everything else that is wrong with it.
        """
        naming = Naming(tenant=self.tenant, own=ScopedKey(f"source:{self.source}", f"{self.id}.{place}"))
        submission = parse(ParsedEnvelope(document), naming, self.trace)
        return resolve(submission, source=self.source, now=now)


def batch_items(workflow: WorkflowRequest, request: BatchRequest, now: datetime) -> list[Item]:
    """Validate the items of a batch; one that cannot be an operation is kept with the reason."""
    return [_item(workflow, at, document, now) for at, document in enumerate(request.items)]


def _item(workflow: WorkflowRequest, index: int, document: Any, now: datetime) -> Item:
    text = json.dumps(document)
    limit = app_settings().max_body_bytes
    if len(text.encode()) > limit:
        return Item(index=index, key=None, text=text, detail=f"is larger than {limit} bytes")
    try:
        operation = workflow.resolve(document, str(index), now)
    except UnknownTargetError as error:
        reason = DeadLetterReason.UNKNOWN_DEPENDENCY
        return Item(index=index, key=_key_of(document), text=text, reason=reason, detail=str(error))
    except InvalidInputError as error:
        return Item(index=index, key=_key_of(document), text=text, detail=str(error))
    return Item(index=index, key=operation.key, operation=operation)


class _Keyed(Strict, extra="ignore"):
    """The key of an item that is invalid otherwise."""

    key: Key | None = None


def _key_of(document: Any) -> str | None:
    try:
        return None if json_problems(document) else validated(_Keyed, document).key
    except InvalidInputError:
        return None


def saga_steps(workflow: WorkflowRequest, request: SagaRequest, now: datetime) -> tuple[Step, ...]:
    """Resolve every operation and every compensation.

    Raises:
        InvalidInputError: With every mistake in all of them, each with its pointer.
    """
    reader = _StepReader(workflow, now)
    found = [
        (step.name, reader.operation(index, step), reader.compensation(index, step))
        for index, step in enumerate(request.steps)
    ]
    if reader.problems:
        raise InvalidInputError(reader.problems)
    return tuple(
        Step(name=name, operation=operation, compensation=compensation)
        for name, operation, compensation in found
        if operation is not None
    )


class _StepReader:
    """Resolves the operations of steps, collecting mistakes instead of stopping at the first."""

    def __init__(self, workflow: WorkflowRequest, now: datetime) -> None:
        self.problems: list[Problem] = []
        self._workflow = workflow
        self._now = now
        self._seen: set[str] = set()

    def operation(self, index: int, step: StepRequest) -> OperationInput | None:
        """Read the operation of a step; None when it has mistakes."""
        return self._read(step.operation, pointer_of("steps", index, "operation"), f"do.{step.name}")

    def compensation(self, index: int, step: StepRequest) -> OperationInput | None:
        """Read the compensation of a step; None when it has none, or one with mistakes."""
        if step.compensation is None:
            return None
        pointer = pointer_of("steps", index, "compensation")
        operation = self._read(step.compensation, pointer, f"undo.{step.name}")
        return None if operation is None else replace(operation, undoes=self._workflow.id)

    def _read(self, document: dict[str, Any], pointer: str, place: str) -> OperationInput | None:
        try:
            operation = self._workflow.resolve(document, place, self._now)
        except InvalidInputError as error:
            self.problems.extend(Problem(pointer + each.pointer, each.detail) for each in error.problems)
            return None
        if operation.operation_id in self._seen:
            self.problems.append(Problem(f"{pointer}/key", "is that of another operation of this saga"))
        self._seen.add(operation.operation_id)
        return operation
