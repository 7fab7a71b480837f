"""Functions that pass on what they get through output bindings."""

from typing import List  # noqa: UP035 # the worker reads no other spelling

import azure.functions as func

blueprint = func.Blueprint()  # type: ignore[no-untyped-call] # azure-functions has no types


@blueprint.route(route="pass/{queue}", methods=["POST"], auth_level=func.AuthLevel.ANONYMOUS)
@blueprint.queue_output(arg_name="messages", queue_name="{queue}", connection="AzureWebJobsStorage")
def pass_to_queue(req: func.HttpRequest, messages: func.Out[List[str]]) -> str:  # noqa: UP006 # the worker reads no other spelling
    messages.set(req.get_json())
    return "passed"


@blueprint.queue_trigger(arg_name="message", queue_name="to-blob", connection="AzureWebJobsStorage")
@blueprint.blob_output(arg_name="blob", path="passed/{id}.txt", connection="AzureWebJobsStorage")
def pass_to_blob(message: func.QueueMessage, blob: func.Out[str]) -> None:
    blob.set(message.get_body().decode())


@blueprint.route(route="unserved", methods=["POST"], auth_level=func.AuthLevel.ANONYMOUS)
@blueprint.generic_output_binding(arg_name="out", type="signalR", hub_name="x")
def unserved(req: func.HttpRequest, out: func.Out[str]) -> str:  # noqa: ARG001 # the binding names it
    out.set("nowhere to go")
    return "unreachable"
