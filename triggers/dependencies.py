"""HTTP: the configured dependencies, without their secrets."""

import azure.durable_functions as df
import azure.functions as func

from stores.configuration import dependencies
from triggers.problems import json_answer

blueprint = df.Blueprint()


@blueprint.route(route="dependencies", methods=["GET"])
async def list_dependencies(req: func.HttpRequest) -> func.HttpResponse:  # noqa: ARG001 - the trigger's own
    """List every dependency with its resolved policy; all of them, since a file holds them."""
    items = [dependency.to_json() for _, dependency in sorted(dependencies().dependencies.items())]
    return json_answer({"items": items, "next_cursor": None})
