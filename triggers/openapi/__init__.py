"""HTTP: the description of this API, generated from the models that validate."""

from functools import cache
from typing import Any, Final

import azure.durable_functions as df
import azure.functions as func

from triggers.openapi.document import openapi_document
from triggers.openapi.routes import ROUTES
from triggers.problems import json_answer

blueprint = df.Blueprint()

VERSION: Final = "1.0.0"


@cache
def described() -> dict[str, Any]:
    """Return the document, made once per process."""
    return openapi_document(ROUTES, VERSION)


@blueprint.route(route="openapi.json", methods=["GET"], auth_level=func.AuthLevel.ANONYMOUS)
async def get_openapi(req: func.HttpRequest) -> func.HttpResponse:  # noqa: ARG001 - the trigger's own
    """Describe every route with every answer."""
    return json_answer(described())
