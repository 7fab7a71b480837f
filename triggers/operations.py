"""HTTP: submit an operation, and see where it stands."""

import uuid
from http import HTTPStatus
from typing import Any, Final

import azure.functions as func

from engine.naming import Name, explicit_scope
from engine.operation import OperationInput
from engine.vocabulary import OperationState
from stores import clock
from stores.status import document_of, find_status, with_event_states
from stores.submission import KeyReused, Replayed, Started, submit
from stores.task_hub import wait_for_operation
from triggers.bodies import (
    preferred_wait_seconds,
    tenant_of,
    url_of,
)
from triggers.http_blueprint import HttpBlueprint
from triggers.posted import read_posted
from triggers.problems import REPLAYED, json_answer, key_reused, not_found
from triggers.resolution import Origin, resolve

blueprint = HttpBlueprint()

SOURCE: Final = "http"

_POLL_SECONDS: Final = 1


@blueprint.route(route="operations", methods=["POST"])
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def submit_operation(req: func.HttpRequest, hub: str) -> func.HttpResponse:
    """Take an operation over."""
    posted = read_posted(req)
    name = posted.name or new_name(req)
    origin = Origin(source=SOURCE, scope=name.scope, key=name.key, trace=posted.trace)
    operation = resolve(posted.request, origin, clock.now())
    return await _answer_submission(req, hub, operation, is_new_key=posted.name is None)


@blueprint.route(route="operations/{operation_id}", methods=["GET"])
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def get_operation(req: func.HttpRequest, hub: str) -> func.HttpResponse:
    """Show an operation's status document."""
    document = await find_status(hub, req.route_params["operation_id"])
    return not_found("operation of this id") if document is None else json_answer(document)


def new_name(request: func.HttpRequest) -> Name:
    """Return a name that no operation has, for a caller who gave none."""
    return Name(explicit_scope(tenant_of(request)), f"gen-{uuid.uuid4()}")


async def _answer_submission(
    request: func.HttpRequest, hub: str, operation: OperationInput, *, is_new_key: bool
) -> func.HttpResponse:
    submission = await submit(hub, operation, is_new_key=is_new_key)
    match submission:
        case KeyReused():
            return key_reused()
        case Replayed(document, finished=True):
            return json_answer(await with_event_states(document), headers=REPLAYED)
        case Replayed(document):
            state, headers = document["status"], REPLAYED
        case Started():
            state, headers = OperationState.PENDING.value, {}
    seconds = preferred_wait_seconds(request)
    if seconds > 0 and (ended := await wait_for_operation(hub, operation.operation_id, seconds)) is not None:
        applied = {**headers, "Preference-Applied": f"wait={seconds:.0f}"}
        return json_answer(await with_event_states(document_of(ended)), headers=applied)
    return _accepted(request, operation, state, headers)


def _accepted(
    request: func.HttpRequest, operation: OperationInput, state: str, headers: dict[str, str]
) -> func.HttpResponse:
    body: dict[str, Any] = {
        "operation_id": operation.operation_id,
        "key": operation.key,
        "status": state,
        "status_url": f"{url_of(request)}/{operation.operation_id}",
    }
    more = {"Location": body["status_url"], "Retry-After": str(_POLL_SECONDS)}
    return json_answer(body, HTTPStatus.ACCEPTED, more | headers)
