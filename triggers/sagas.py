"""HTTP: start a saga, and see what stands and what was undone."""

import uuid
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import azure.functions as func

from engine.fingerprint import fingerprint
from engine.operation import OperationInput
from engine.problem import InvalidInputError, Problem, pointer_of
from engine.saga import Saga, Step
from engine.saga_request import SagaRequest, StepRequest
from stores import clock
from stores.instances import start
from stores.saga_status import find_saga, fingerprint_of
from stores.task_hub import SAGA, read_operation
from triggers.http_blueprint import HttpBlueprint
from triggers.parts import Whole, read_whole, taken_over, whole_of
from triggers.problems import json_answer, key_reused, not_found

blueprint = HttpBlueprint()

SOURCE: Final = "saga"


@blueprint.route(route="sagas", methods=["POST"])
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def submit_saga(req: func.HttpRequest, hub: str) -> func.HttpResponse:
    """Take a saga over, all of it or nothing."""
    document, request = read_whole(req, SagaRequest)
    whole = whole_of(req, SOURCE, uuid.uuid4().hex)
    now = clock.now()
    saga = Saga(
        saga_id=whole.id,
        steps=_steps(whole, request, now),
        created_at=now,
        fingerprint=fingerprint(SOURCE, document),
    )
    if await start(hub, SAGA, saga.saga_id, {"saga": saga.to_json()}, again=False):
        return taken_over(req, whole, is_replay=False)
    known = await read_operation(hub, saga.saga_id)
    if known is not None and fingerprint_of(known) != saga.fingerprint:
        return key_reused()
    return taken_over(req, whole, is_replay=True)


@blueprint.route(route="sagas/{saga_id}", methods=["GET"])
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def get_saga(req: func.HttpRequest, hub: str) -> func.HttpResponse:
    """Show a saga: its steps, what stands, what was undone, and what is not known."""
    document = await find_saga(hub, req.route_params["saga_id"])
    return not_found("saga of this id") if document is None else json_answer(document)


def _steps(whole: Whole, request: SagaRequest, now: datetime) -> tuple[Step, ...]:
    """Resolve every operation and every compensation.

    Raises:
        InvalidInputError: With every mistake in all of them, each at its place.
    """
    reader = _Reader(whole, now)
    parts = [
        (step.name, reader.operation(index, step), reader.compensation(index, step))
        for index, step in enumerate(request.steps)
    ]
    if reader.problems:
        raise InvalidInputError(reader.problems)
    return tuple(
        Step(name=name, operation=operation, compensation=compensation)
        for name, operation, compensation in parts
        if operation is not None
    )


class _Reader:
    """Resolves parts, collecting mistakes instead of stopping at the first."""

    def __init__(self, whole: Whole, now: datetime) -> None:
        self.problems: list[Problem] = []
        self._whole = whole
        self._now = now
        self._seen: set[str] = set()

    def operation(self, index: int, step: StepRequest) -> OperationInput | None:
        """Read what a step does; None when it has mistakes."""
        return self._read(step.operation, pointer_of("steps", index, "operation"), f"do.{step.name}")

    def compensation(self, index: int, step: StepRequest) -> OperationInput | None:
        """Read what undoes a step; None when nothing does, or it has mistakes."""
        if step.compensation is None:
            return None
        place = pointer_of("steps", index, "compensation")
        operation = self._read(step.compensation, place, f"undo.{step.name}")
        return None if operation is None else replace(operation, undoes=self._whole.id)

    def _read(self, document: dict[str, Any], pointer: str, place: str) -> OperationInput | None:
        try:
            operation = self._whole.resolve(document, place, self._now)
        except InvalidInputError as error:
            self.problems.extend(Problem(pointer + each.pointer, each.detail) for each in error.problems)
            return None
        if operation.operation_id in self._seen:
            self.problems.append(Problem(f"{pointer}/key", "is that of another part of this saga"))
        self._seen.add(operation.operation_id)
        return operation
