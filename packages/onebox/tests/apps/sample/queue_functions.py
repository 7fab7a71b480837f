"""A queue function whose message says what it should do, and an HTTP function that returns what it saw."""

import json
import time

import azure.durable_functions as df
import azure.functions as func

blueprint = df.Blueprint(http_auth_level=func.AuthLevel.ANONYMOUS)

SEEN: list[dict[str, object]] = []


@blueprint.queue_trigger(arg_name="message", queue_name="%WORK_QUEUE%", connection="AzureWebJobsStorage")
def work(message: func.QueueMessage) -> None:
    body = message.get_body().decode()
    run: dict[str, object] = {
        "id": message.id,
        "body": body,
        "dequeue_count": message.dequeue_count,
        "inserted": str(message.insertion_time).replace(" ", "T"),
        "has_receipt": bool(message.pop_receipt),
        "at": time.time(),
    }
    SEEN.append(run)
    try:
        _obey(body)
    finally:
        run["ended_at"] = time.time()


def _obey(body: str) -> None:
    order, _, detail = body.partition(" ")
    if order == "fail":
        raise RuntimeError(body)
    if order == "sleep":
        time.sleep(float(detail))


@blueprint.route(methods=["GET"])
def seen(req: func.HttpRequest) -> func.HttpResponse:  # noqa: ARG001 # the binding names it
    return func.HttpResponse(json.dumps(SEEN), mimetype="application/json")
