"""HTTP: how many operations are in which state, lately and now."""

from typing import Final

import azure.functions as func

from stores.operation_summary import operation_summary
from triggers.http_blueprint import HttpBlueprint
from triggers.problems import json_answer
from triggers.queries import Query

blueprint = HttpBlueprint()

LEAST_SECONDS: Final = 60
MOST_SECONDS: Final = 604_800
DEFAULT_SECONDS: Final = 900


@blueprint.route(route="operations/summary", methods=["GET"])
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def summarize_operations(req: func.HttpRequest, hub: str) -> func.HttpResponse:
    """Count operations by state, time of acceptance and dependency."""
    query = Query(req.params)
    seconds = query.whole("window_seconds", LEAST_SECONDS, MOST_SECONDS)
    query.check()
    return json_answer(await operation_summary(hub, DEFAULT_SECONDS if seconds is None else seconds))
