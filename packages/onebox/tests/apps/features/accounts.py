"""Entities: as a class and as a function; signals between entities, entities that start instances."""

import json
from collections.abc import Generator
from datetime import timedelta
from typing import Any

import azure.durable_functions as df
import azure.functions as func
from durabletask import task
from durabletask.entities import DurableEntity, EntityContext, EntityInstanceId

Turns = Generator[task.Task[Any], Any, Any]

blueprint = df.Blueprint(http_auth_level=func.AuthLevel.ANONYMOUS)


@blueprint.entity_trigger(context_name="context", entity_name="account")
class Account(DurableEntity):
    """Money; a bank hears of every payment."""

    def deposit(self, amount: int) -> int:
        balance: int = self.get_state(int, 0) + amount
        self.set_state(balance)
        self.signal_entity(EntityInstanceId("bank", "total"), "record", amount)
        return balance

    def audit(self, instance_id: str) -> str:
        return self.schedule_new_orchestration("stamps", input="audit", instance_id=instance_id)


@blueprint.entity_trigger(context_name="context")
def bank(context: EntityContext, amount: int) -> Any:
    """An entity written as a function."""
    context.set_state(context.get_state(int, 0) + amount)
    return context.get_state(int, 0)


@blueprint.orchestration_trigger(context_name="context")
def audits(context: task.OrchestrationContext, order: dict[str, Any]) -> Turns:
    """Has an entity start an instance, and signals another entity for later."""
    bank_id = EntityInstanceId("bank", order["bank"])
    due = context.current_utc_datetime + timedelta(milliseconds=200)
    context.signal_entity(bank_id, "record", 7, signal_time=due)
    account = EntityInstanceId("account", order["source"])
    return (yield context.call_entity(account, "audit", f"{context.instance_id}-audit"))


@blueprint.route(route="entities/{name}/{key}/{operation}", methods=["POST"])
@blueprint.durable_client_input(client_name="client")
def signal(req: func.HttpRequest, client: df.SyncDurableFunctionsClient) -> func.HttpResponse:
    entity = EntityInstanceId(req.route_params["name"], req.route_params["key"])
    client.signal_entity(entity, req.route_params["operation"], input=json.loads(req.get_body() or b"null"))
    return func.HttpResponse(status_code=202)
