"""Samples for the scheduler, in the style of version 1, which version 2 still runs."""

from collections.abc import Callable, Generator
from datetime import timedelta
from typing import Any

import azure.durable_functions as df
import azure.functions as func

blueprint = df.Blueprint(http_auth_level=func.AuthLevel.ANONYMOUS)

# The SDK's types are those of version 2.
orchestration_trigger: Callable[..., Callable[[Any], Any]] = blueprint.orchestration_trigger

entity_trigger: Callable[..., Callable[[Any], Any]] = blueprint.entity_trigger

READY_AT = 3
LAPS = 3
CRATES = 5


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


@orchestration_trigger(context_name="context")
def tour(context: df.DurableOrchestrationContext) -> Generator[Any, Any, Any]:
    """Hello cities and work item filtering: a child that fans out, and an entity that counts."""
    greetings = yield context.call_sub_orchestrator("greet_all", context.get_input())
    stops = df.EntityId("stops", "tour")
    yield context.call_entity(stops, "add", len(greetings))
    return {"greetings": greetings, "stops": (yield context.call_entity(stops, "get"))}


@orchestration_trigger(context_name="context")
def greet_all(context: df.DurableOrchestrationContext) -> Generator[Any, Any, Any]:
    greetings = yield context.task_all([context.call_activity("greet", city) for city in context.get_input()])
    return greetings


@blueprint.activity_trigger(input_name="city")
def greet(city: str) -> str:
    return f"Good morning, {city}"


@entity_trigger(context_name="context")
def stops(context: df.DurableEntityContext) -> None:
    count = context.get_state(lambda: 0)
    if context.operation_name == "add":
        count += context.get_input()
    context.set_state(count)
    context.set_result(count)


@orchestration_trigger(context_name="context")
def weigh(context: df.DurableOrchestrationContext) -> Generator[Any, Any, Any]:
    """Large payloads: activities that each return a large result at the same time."""
    kilobytes = context.get_input()
    crates = yield context.task_all([context.call_activity("pack", kilobytes) for _ in range(CRATES)])
    return sum(len(crate["content"]) for crate in crates)


@blueprint.activity_trigger(input_name="kilobytes")
def pack(kilobytes: int) -> dict[str, str]:
    return {"content": "x" * (kilobytes * 1024)}
