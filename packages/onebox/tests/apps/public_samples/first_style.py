"""Three samples for the scheduler, in the style of version 1, which version 2 still runs."""

from collections.abc import Callable, Generator
from datetime import timedelta
from typing import Any

import azure.durable_functions as df
import azure.functions as func

blueprint = df.Blueprint(http_auth_level=func.AuthLevel.ANONYMOUS)

# The SDK's types are those of version 2.
orchestration_trigger: Callable[..., Callable[[Any], Any]] = blueprint.orchestration_trigger

READY_AT = 3
LAPS = 3


@orchestration_trigger(context_name="context")
def watch_parcel(context: df.DurableOrchestrationContext) -> Generator[Any, Any, Any]:
    """Monitoring: look, publish what was seen, wait, look again."""
    looks, place = 0, ""
    while place != "door":
        looks += 1
        place = yield context.call_activity("locate_parcel", looks)
        context.set_custom_status({"looks": looks, "place": place})
        yield context.create_timer(context.current_utc_datetime + timedelta(milliseconds=50))
    return {"looks": looks}


@blueprint.activity_trigger(input_name="look")
def locate_parcel(look: int) -> str:
    return "door" if look >= READY_AT else "road"


@orchestration_trigger(context_name="context")
def tidy(context: df.DurableOrchestrationContext) -> Generator[Any, Any, Any]:
    """An eternal orchestration, which here ends after some laps: each begins with a fresh history."""
    lap = context.get_input() or 1
    yield context.create_timer(context.current_utc_datetime + timedelta(milliseconds=20))
    if lap < LAPS:
        context.continue_as_new(lap + 1)
        return None
    return lap
