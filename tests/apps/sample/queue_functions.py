"""A queue function whose message says what it should do, and an HTTP function that tells what it saw."""

import json

import azure.durable_functions as df
import azure.functions as func

blueprint = df.Blueprint(http_auth_level=func.AuthLevel.ANONYMOUS)

SEEN: list[dict[str, object]] = []


@blueprint.queue_trigger(arg_name="message", queue_name="%WORK_QUEUE%", connection="AzureWebJobsStorage")
def work(message: func.QueueMessage) -> None:
    body = message.get_body().decode()
    SEEN.append(
        {
            "id": message.id,
            "body": body,
            "dequeue_count": message.dequeue_count,
            "inserted": str(message.insertion_time),
            "has_receipt": bool(message.pop_receipt),
        }
    )
    if body.startswith("fail"):
        raise RuntimeError(body)


@blueprint.route(methods=["GET"])
def seen(req: func.HttpRequest) -> func.HttpResponse:  # noqa: ARG001 # the binding names it
    return func.HttpResponse(json.dumps(SEEN), mimetype="application/json")
