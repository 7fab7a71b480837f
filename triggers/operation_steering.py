"""HTTP: cancel an operation, or end its present wait."""

from http import HTTPStatus
from typing import Any, Final

import azure.functions as func

from engine.vocabulary import OperationState
from stores.status import find_status
from stores.status_document import is_finished
from stores.task_hub import CANCEL_EVENT, RETRY_NOW_EVENT, raise_event
from triggers.http_blueprint import HttpBlueprint
from triggers.problems import WRONG_STATE, json_answer, not_found, problem

blueprint = HttpBlueprint()

_WAITING: Final = frozenset({OperationState.WAITING_RETRY.value, OperationState.WAITING_CIRCUIT.value})


@blueprint.route(route="operations/{operation_id}/cancel", methods=["POST"])
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def cancel_operation(req: func.HttpRequest, hub: str) -> func.HttpResponse:
    """Let an operation end cancelled; an attempt that is under way ends first, and may still succeed."""
    operation_id = req.route_params["operation_id"]
    document = await find_status(hub, operation_id)
    if document is None:
        return not_found("operation of this id")
    if is_finished(document):
        return _wrong_state(document, "is finished and cannot be cancelled")
    await raise_event(hub, operation_id, CANCEL_EVENT, {})
    return _taken(document)


@blueprint.route(route="operations/{operation_id}/retry-now", methods=["POST"])
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def retry_operation_now(req: func.HttpRequest, hub: str) -> func.HttpResponse:
    """End an operation's present wait."""
    operation_id = req.route_params["operation_id"]
    document = await find_status(hub, operation_id)
    if document is None:
        return not_found("operation of this id")
    if document["status"] not in _WAITING:
        return _wrong_state(document, "is not waiting")
    # The event names the attempt that it hurries: should this wait end first, it must not end the next.
    await raise_event(hub, operation_id, RETRY_NOW_EVENT, {"attempt": document["attempt_count"] + 1})
    return _taken(document)


def _taken(document: dict[str, Any]) -> func.HttpResponse:
    body = {"operation_id": document["operation_id"], "status": document["status"]}
    return json_answer(body, HTTPStatus.ACCEPTED)


def _wrong_state(document: dict[str, Any], what: str) -> func.HttpResponse:
    return problem(
        HTTPStatus.CONFLICT,
        f"The operation {what}: its status is {document['status']}.",
        type_=WRONG_STATE,
    )
