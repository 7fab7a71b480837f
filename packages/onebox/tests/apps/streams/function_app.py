"""HTTP streams with FastAPI's requests and responses, as the extension's samples show them."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import azure.durable_functions as df
import azure.functions as func
from azurefunctions.extensions.http.fastapi import JSONResponse, PlainTextResponse, Request, StreamingResponse
from durabletask import task
from fastapi import HTTPException

app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)

PIECE = b"x" * 65_536


@app.route(route="upload/{name}", methods=["POST"])
async def upload(req: Request) -> JSONResponse:
    size = 0
    async for piece in req.stream():
        size += len(piece)
    return JSONResponse({"name": req.path_params["name"], "size": size}, status_code=201)


@app.route(route="download/{pieces:int}", methods=["GET"])
def download(req: Request) -> StreamingResponse:
    pieces = (PIECE for _ in range(int(req.path_params["pieces"])))
    return StreamingResponse(pieces, media_type="application/octet-stream")


@app.route(route="first-piece", methods=["POST"])
async def first_piece(req: Request) -> PlainTextResponse:
    """Answers before the rest has come."""
    return PlainTextResponse(await anext(req.stream()))


@app.route(route="events", methods=["GET"])
async def events(req: Request) -> StreamingResponse:  # noqa: ARG001 # the trigger's
    async def ticks() -> AsyncIterator[str]:
        for number in range(3):
            yield f"data: {number} {time.monotonic()}\n\n"
            await asyncio.sleep(0.2)

    return StreamingResponse(ticks(), media_type="text/event-stream")


@app.route(route="endless", methods=["GET"])
async def endless(req: Request) -> StreamingResponse:  # noqa: ARG001 # the trigger's
    async def beats() -> AsyncIterator[str]:
        while True:
            yield "beat\n"
            await asyncio.sleep(0.1)

    return StreamingResponse(beats())


@app.route(route="flood", methods=["GET"])
async def flood(req: Request) -> StreamingResponse:  # noqa: ARG001 # the trigger's
    """Sends as fast as it may, and counts each piece in a file by one byte."""

    async def pieces() -> AsyncIterator[memoryview]:
        while True:
            with Path(os.environ["SENT_PIECES_FILE"]).open("ab") as sent:  # noqa: ASYNC230 # a byte
                sent.write(b".")
            yield memoryview(PIECE)

    return StreamingResponse(pieces())


@app.route(route="ends", methods=["GET"])
async def ends(req: Request) -> JSONResponse:  # noqa: ARG001 # the trigger's
    os._exit(3)


@app.route(route="sleeps", methods=["GET"])
async def sleeps(req: Request) -> JSONResponse:  # noqa: ARG001 # the trigger's
    await asyncio.sleep(600)
    return JSONResponse("too late")


@app.route(route="words", methods=["GET", "HEAD"])
def words(req: Request) -> str:
    asked = str(req.query_params.get("q", ""))
    return str(os.getpid()) if asked == "pid" else asked


@app.route(route="absent", methods=["GET"])
async def absent(req: Request) -> JSONResponse:  # noqa: ARG001 # the trigger's
    raise HTTPException(404, "there is no such thing")


@app.route(route="boom", methods=["GET"])
async def boom(req: Request) -> JSONResponse:  # noqa: ARG001 # the trigger's
    raise ValueError("a secret")


@app.route(route="breaks", methods=["GET"])
async def breaks(req: Request) -> StreamingResponse:  # noqa: ARG001 # the trigger's
    def half() -> Iterator[bytes]:
        yield b"half"
        raise ValueError("the other half is missing")

    return StreamingResponse(half())


@app.route(route="start", methods=["POST"])
@app.durable_client_input(client_name="client")
async def start(req: Request, client: df.DurableFunctionsClient) -> JSONResponse:
    instance = await client.schedule_new_orchestration("shout", input=(await req.json())["word"])
    state = await client.wait_for_orchestration_completion(instance, timeout=20)
    return JSONResponse({"output": state and state.serialized_output})


@app.orchestration_trigger(context_name="context")
def shout(_: task.OrchestrationContext, word: str) -> str:
    return word.upper()
