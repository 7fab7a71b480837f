"""HTTP functions that show what a request and a response can be."""

import asyncio
import json
import logging
import time

import azure.durable_functions as df
import azure.functions as func

blueprint = df.Blueprint(http_auth_level=func.AuthLevel.ANONYMOUS)


@blueprint.route(route="echo/{*rest}")
async def echo(req: func.HttpRequest) -> func.HttpResponse:
    document = {
        "method": req.method,
        "url": req.url,
        "rest": req.route_params.get("rest"),
        "query": dict(req.params),
        "header": req.headers.get("X-Thing"),
        "body": req.get_body().decode(),
    }
    return func.HttpResponse(json.dumps(document), mimetype="application/json", status_code=201)


@blueprint.route(route="trace", methods=["GET"])
def trace(req: func.HttpRequest, context: func.Context) -> str:  # noqa: ARG001 # the binding names it
    return f"{context.trace_context.trace_parent} {context.trace_context.trace_state}"


@blueprint.route(route="items/{id:int}", methods=["GET"])
def item_by_number(req: func.HttpRequest) -> str:
    return f"number {req.route_params['id']}"


@blueprint.route(route="items/{name:regex(^(?!special$)(?![0-9]+$).+$)}", methods=["GET"])
def item_by_name(req: func.HttpRequest) -> str:
    return f"name {req.route_params['name']}"


@blueprint.route(route="items/special", methods=["GET"])
def item_special(req: func.HttpRequest) -> str:  # noqa: ARG001 # the binding names it
    return "special"


@blueprint.route(methods=["GET"])
def cookies(req: func.HttpRequest) -> func.HttpResponse:  # noqa: ARG001 # the binding names it
    response = func.HttpResponse("two cookies", headers={"X-Thing": "yes"})
    response.headers.add("Set-Cookie", "a=1; Path=/; HttpOnly")
    response.headers.add("Set-Cookie", "b=2; Max-Age=60; SameSite=Lax")
    return response


@blueprint.route(methods=["GET", "HEAD", "OPTIONS"])
def verbs(req: func.HttpRequest) -> func.HttpResponse:
    return func.HttpResponse(req.method, headers={"Allow": "GET, HEAD, OPTIONS"})


@blueprint.route(methods=["GET"])
def unsendable(req: func.HttpRequest) -> func.HttpResponse:  # noqa: ARG001 # the binding names it
    return func.HttpResponse("x", headers={"X-Name": "日本"})


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@blueprint.route(methods=["GET"])
async def leaves(req: func.HttpRequest) -> str:
    """Raise what would end a task or an event loop, here or (`?later`) in a task of its own."""
    how = {
        "exit": SystemExit(3),
        "interrupt": KeyboardInterrupt(),
        "cancel": asyncio.CancelledError(),
        "close": GeneratorExit(),
        "other": BaseException(),
        "mute": MuteError(),
    }
    if "later" in req.params:
        asyncio.get_running_loop().call_soon(_throw, how[req.params["how"]])
        return "later"
    raise how[req.params["how"]]


def _throw(error: BaseException) -> None:
    raise error


@blueprint.route(methods=["GET"])
def boom(req: func.HttpRequest) -> str:  # noqa: ARG001 # the binding names it
    logging.getLogger(__name__).warning("about to fail")
    raise ValueError("a secret that callers must not see")


@blueprint.route(methods=["GET"])
async def empty(req: func.HttpRequest) -> func.HttpResponse:  # noqa: ARG001 # the binding names it
    return func.HttpResponse(status_code=204)


@blueprint.route(methods=["POST"])
async def blocks(req: func.HttpRequest) -> str:
    """Blocks the loop that it runs on, as no async function should."""
    time.sleep(float(req.params["seconds"]))  # noqa: ASYNC251 # the mistake is the point
    return "done"


@blueprint.route(methods=["POST"])
def slow(req: func.HttpRequest) -> str:
    logging.getLogger(__name__).info("slow began")
    time.sleep(float(req.params["seconds"]))
    return "done"
