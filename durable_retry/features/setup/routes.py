"""HTTP: make the queues and tables of the app."""

import azure.functions as func

from durable_retry.features.setup.storage import SetUp, set_up
from durable_retry.http.answers import json_answer
from durable_retry.http.routes import Routes, shown

routes = Routes("the app")


@routes.post("setup", answers=shown(SetUp))
async def set_up_storage() -> func.HttpResponse:
    """Make the queues and tables that are missing in the storage account; to repeat it changes nothing."""
    return json_answer(await set_up())
