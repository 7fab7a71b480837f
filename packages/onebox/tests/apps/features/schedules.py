"""Scheduled tasks: an orchestration every so often, until the schedule is deleted."""

import json
from datetime import timedelta

import azure.durable_functions as df
import azure.functions as func
from durabletask.scheduled import AsyncScheduledTaskClient, ScheduleCreationOptions

blueprint = df.Blueprint(http_auth_level=func.AuthLevel.ANONYMOUS)


@blueprint.route(route="schedules/{schedule}", methods=["POST"])
@blueprint.durable_client_input(client_name="client")
async def create_schedule(req: func.HttpRequest, client: df.DurableFunctionsClient) -> func.HttpResponse:
    options = ScheduleCreationOptions(
        schedule_id=req.route_params["schedule"],
        orchestration_name=req.params["orchestration"],
        interval=timedelta(seconds=1),
        orchestration_input=json.loads(req.get_body()),
    )
    await AsyncScheduledTaskClient(client).create_schedule(options)
    return func.HttpResponse(status_code=201)


@blueprint.route(route="schedules/{schedule}", methods=["GET"])
@blueprint.durable_client_input(client_name="client")
async def read_schedule(req: func.HttpRequest, client: df.DurableFunctionsClient) -> func.HttpResponse:
    found = await AsyncScheduledTaskClient(client).get_schedule(req.route_params["schedule"])
    return func.HttpResponse(status_code=404) if found is None else func.HttpResponse(found.status.name)


@blueprint.route(route="schedules/{schedule}/{action:alpha}", methods=["POST"])
@blueprint.durable_client_input(client_name="client")
async def change_schedule(req: func.HttpRequest, client: df.DurableFunctionsClient) -> func.HttpResponse:
    schedule = AsyncScheduledTaskClient(client).get_schedule_client(req.route_params["schedule"])
    match req.route_params["action"]:
        case "pause":
            await schedule.pause()
        case "resume":
            await schedule.resume()
        case "delete":
            await schedule.delete()
    return func.HttpResponse(status_code=202)
