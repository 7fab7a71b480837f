"""HTTP: the outbox, and sending an event once more; and the timer that makes up what a crash left."""

import logging
from http import HTTPStatus
from typing import Final

import azure.functions as func

from engine.outbox import EventState
from stores import clock
from stores.outbox import NoSuchEventError, list_pending
from stores.outbox_index import list_ended
from stores.outbox_sending import resend, sweep
from triggers.problems import json_answer, not_found
from triggers.queries import Query
from triggers.retried import RetriedBlueprint, note_retry

blueprint = RetriedBlueprint()

_STATES: Final = frozenset(state.value for state in EventState)

_log = logging.getLogger(__name__)


@blueprint.route(route="outbox", methods=["GET"])
async def list_outbox(req: func.HttpRequest) -> func.HttpResponse:
    """List events of one state, pending ones unless told otherwise, a page at a time."""
    query = Query(req.params)
    state = query.one_of("state", _STATES) or EventState.PENDING.value
    limit, cursor = query.limit(), query.text("cursor")
    query.check()
    if state == EventState.PENDING:
        items, following = await list_pending(limit, cursor)
    else:
        items, following = await list_ended(EventState(state), limit, cursor)
    return json_answer({"items": items, "next_cursor": following})


@blueprint.route(route="outbox/{event_id}/resend", methods=["POST"])
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def resend_event(req: func.HttpRequest, hub: str) -> func.HttpResponse:
    """Send an event once more, whatever became of it before."""
    event_id = req.route_params["event_id"]
    try:
        event = await resend(hub, event_id, clock.now())
    except NoSuchEventError:
        return not_found("event of this id")
    return json_answer(event.to_json(), HTTPStatus.ACCEPTED)


@blueprint.retry_upkeep()
@blueprint.timer_trigger(arg_name="timer", schedule="30 * * * * *")
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def outbox_sweeper(
    timer: func.TimerRequest,  # noqa: ARG001 - the trigger's own
    context: func.Context,
    hub: str,
) -> None:
    """Start what should be sending and is not."""
    note_retry(context)
    started = await sweep(hub, clock.now())
    if started:
        _log.warning("%s operations had events that nobody was sending", started)
