"""HTTP: replay dead letters in bulk, see how far it got, cancel it."""

from http import HTTPStatus
from urllib.parse import urlsplit

import azure.functions as func

from engine.bulk_replay import FINISHED_REPLAY, BulkReplayBody, ReplayState
from engine.validation import validated
from stores import clock
from stores.dead_letter_list import count_dead_letters
from stores.replays import CANCEL_REPLAY_EVENT, find_bulk_replay, start_bulk_replay
from stores.task_hub import raise_event
from triggers.bodies import read_body
from triggers.http_blueprint import HttpBlueprint
from triggers.problems import WRONG_STATE, json_answer, not_found, problem

blueprint = HttpBlueprint()

_POLL_SECONDS = 2
_WHAT = "bulk replay of this id"


@blueprint.route(route="dead-letters/replays", methods=["POST"])
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def start_replay_of_many(req: func.HttpRequest, hub: str) -> func.HttpResponse:
    """Count the open dead letters that a filter finds, and unless it is a dry run replay them."""
    now = clock.now()
    body = validated(BulkReplayBody, read_body(req))
    wanted = body.filter.wanted(now)
    matched = await count_dead_letters(wanted)
    if body.dry_run:
        return json_answer({"matched": matched})
    replay_id = await start_bulk_replay(
        hub, wanted, rate_per_second=body.rate_per_second, matched=matched, note=body.note, now=now
    )
    return _accepted(req, replay_id, matched)


@blueprint.route(route="dead-letters/replays/{replay_id}", methods=["GET"])
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def get_replay_of_many(req: func.HttpRequest, hub: str) -> func.HttpResponse:
    """Show how far a bulk replay got."""
    document = await find_bulk_replay(hub, req.route_params["replay_id"])
    return not_found(_WHAT) if document is None else json_answer(document)


@blueprint.route(route="dead-letters/replays/{replay_id}", methods=["DELETE"])
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def cancel_replay_of_many(req: func.HttpRequest, hub: str) -> func.HttpResponse:
    """Cancel a bulk replay: the batch under way ends, what was replayed stays so, the rest stays open."""
    replay_id = req.route_params["replay_id"]
    document = await find_bulk_replay(hub, replay_id)
    if document is None:
        return not_found(_WHAT)
    if ReplayState(document["status"]) in FINISHED_REPLAY:
        told = f"The bulk replay is {document['status']}."
        return problem(HTTPStatus.CONFLICT, told, type_=WRONG_STATE)
    await raise_event(hub, replay_id, CANCEL_REPLAY_EVENT, {})
    return json_answer(document, HTTPStatus.ACCEPTED)


def _accepted(request: func.HttpRequest, replay_id: str, matched: int) -> func.HttpResponse:
    parts = urlsplit(request.url)
    url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}/{replay_id}"
    body = {"replay_id": replay_id, "matched": matched, "status_url": url}
    return json_answer(body, HTTPStatus.ACCEPTED, {"Location": url, "Retry-After": str(_POLL_SECONDS)})
