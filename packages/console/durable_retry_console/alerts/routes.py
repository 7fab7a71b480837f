"""HTTP: what alerts are raised, the latest incidents, and a test of the receivers."""

from durable_retry.http.callers import Act
from durable_retry.http.routes import OK, RouteAnswer, Routes
from durable_retry.rules.facts import TargetType
from durable_retry_console.alerts.board import AlertBoard, AlertTests, read_board, try_receivers

routes = Routes("alerts")


@routes.get("alerts")
async def list_alerts() -> AlertBoard:
    """Show what is raised, what was lately, and the receivers.

    A timer compares every minute.
    """
    return await read_board()


@routes.post(
    "alerts/test",
    act=Act("sent a test of the alerts", TargetType.ALERT, "condition"),
    answers=(RouteAnswer(OK, "What became of it, receiver by receiver.", AlertTests),),
    errors=(),
)
async def try_receivers_of_alerts() -> AlertTests:
    """Send a message to every receiver at once that says that it is a test."""
    return await try_receivers()
