"""HTTP that leans on the queue: the way for a caller who will not post again.

`POST /api/operations` needs the task hub; when that is away the caller is told to come back. Whoever cannot,
such as the sender of a webhook, posts here: the operation is checked and put on the queue `operations`, which
keeps it and delivers it again until it is taken over. So a trigger without redelivery borrows the queue's.
"""

import json
from http import HTTPStatus
from typing import Any, Final

import azure.functions as func

from engine.envelope import EventName
from engine.naming import Name, event_scope, explicit_scope, visible
from engine.operation import OperationInput
from engine.vocabulary import OperationState
from stores import clock
from stores.queues import MessageRefusedError, send_message
from triggers.bodies import url_of
from triggers.http_blueprint import HttpBlueprint
from triggers.operations import new_name
from triggers.operations_queue import QUEUE, SOURCE
from triggers.posted import Posted, read_posted
from triggers.problems import RETRY_LATER_SECONDS, TOO_LARGE, json_answer, problem
from triggers.resolution import Origin, resolve

blueprint = HttpBlueprint()

_LAST_PART: Final = "/enqueue"
_PLACE: Final = f"/api/operations{_LAST_PART}"


@blueprint.route(route=f"operations{_LAST_PART}", methods=["POST"])
async def enqueue_operation(req: func.HttpRequest) -> func.HttpResponse:
    """Put an operation on the queue; the answer names it although it has not started."""
    posted = read_posted(req)
    name = _name_in_queue(posted.name or new_name(req))
    origin = Origin(source=SOURCE, scope=name.scope, key=name.key)
    operation = resolve(posted.request, origin, clock.now())
    try:
        await send_message(QUEUE, json.dumps(message_of(posted, name)))
    except MessageRefusedError as error:
        return problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error), type_=TOO_LARGE)
    return _accepted(req, operation)


def message_of(posted: Posted, name: Name) -> dict[str, Any]:
    """Return the message that the queue's function reads to the same name.

    A storage queue has no headers: what is more than the operation itself travels in an envelope.
    """
    body = dict(posted.inside.payload)
    event = posted.inside.event
    if event is None or name.scope == explicit_scope(""):
        body["key"], event = name.key, EventName(_PLACE, name.key)
        if posted.trace is None:
            return body
    envelope = {"specversion": "1.0", "id": event.id, "source": event.source, "type": "operation"}
    trace = {} if posted.trace is None else posted.trace.to_json()
    return {**envelope, **trace, "data": body}


def _name_in_queue(name: Name) -> Name:
    """Keep tenants apart: a message does not say whose it is, so its key has to."""
    if name.scope in {explicit_scope(""), event_scope("")}:
        return name
    return Name(explicit_scope(""), visible(f"{name.scope}/{name.key}"))


def _accepted(request: func.HttpRequest, operation: OperationInput) -> func.HttpResponse:
    status_url = f"{url_of(request).removesuffix(_LAST_PART)}/{operation.operation_id}"
    body = {
        "operation_id": operation.operation_id,
        "key": operation.key,
        "status": OperationState.PENDING.value,
        "status_url": status_url,
    }
    headers = {"Location": status_url, "Retry-After": str(RETRY_LATER_SECONDS)}
    return json_answer(body, HTTPStatus.ACCEPTED, headers)
