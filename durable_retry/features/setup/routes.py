"""HTTP: make the queues and tables of the app."""

from durable_retry.features.setup.storage import SetUp, set_up
from durable_retry.http.routes import Routes

routes = Routes("the app")


@routes.post("setup")
async def set_up_storage() -> SetUp:
    """Make the queues and tables that are missing in the storage account; to repeat it changes nothing."""
    return await set_up()
