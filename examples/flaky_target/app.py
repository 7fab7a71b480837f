"""A downstream service that fails on request. It is a tool for trying and testing, and is never deployed.

The first `times` tries of one idempotency key get the named trouble; every later try is answered 200 with an
echo, or with the status that the query names as `then`. Any HTTP method works. Tries are counted per key and
path, so one key may meet several paths; without a key they are counted per path and query.

| path | the first `times` tries | query |
|---|---|---|
| `/echo` | (answers 200 at once) | |
| `/fail/{times}` | are answered with a status | `status` = 503, `retry_after` seconds, `form` |
| `/throttle/{times}` | are answered 429 with Retry-After | `retry_after` = 1, `form` |
| `/hang/{times}` | get no answer for a while, then the echo | `seconds` = 30 |
| `/drop/{times}` | lose their connection | `when` = before_body, after_body (default), mid_response |
| `/slow/{times}` | get their answer in ten pieces | `seconds` = 5 in all |
| `/huge/{times}` | get a body of many bytes | `bytes` = 10000000 |
| `/redirect/{times}` | are redirected | `to` = /echo, `status` = 307 |
| `/garbled/{times}` | get a 200 that calls itself JSON and is not | |
| `/status/{code}` | (every try is answered with this status) | `retry_after`, `form` |
| `/token` | (a token of OAuth for any client, good for a minute) | |
| `/quota/{calls}` | (so many tries of all keys in a window get the echo, others 429) | `seconds` = 10 |

`form` of a Retry-After is `seconds` (default), `date` (an HTTP-date), `ms` (the field `retry-after-ms`) or
`ratelimit` (the field `RateLimit`). Every answer of `/quota` states what is left in `RateLimit`.

`PUT /outage/on?status=503` makes every path above fail until `PUT /outage/off`; with `status=0` it drops the
connection. `GET /counts`, `GET /counts/{key}` and `DELETE /counts` count and forget the requests, per key.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from examples.flaky_target.ledger import Ledger
from examples.flaky_target.troubles import (
    TROUBLES,
    BadInstructionError,
    answer_status,
    cut,
    echo,
    number_in_query,
    refusal,
    token,
)

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
KEY_HEADER = "idempotency-key"
DROP_THE_CONNECTION = 0


@dataclass(slots=True)
class Outage:
    """Whether everything fails. `status` is what it fails with; 0 drops the connection."""

    on: bool = False
    status: int = 503


@dataclass(slots=True)
class Window:
    """The present window of a rate limit: when it ends, and how many calls it has had."""

    until: datetime
    calls: int = 0


class FlakyTarget:
    """The state of one target and the handlers of its routes."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.outage = Outage()
        self.windows: dict[str, Window] = {}

    async def show_counts(self, _request: Request) -> Response:
        """Returns the number of requests per key."""
        return JSONResponse(self.ledger.totals())

    async def show_key(self, request: Request) -> Response:
        """Returns every request of one key."""
        return JSONResponse(self.ledger.of(request.path_params["key"]).as_json())

    async def clear_counts(self, _request: Request) -> Response:
        """Forgets what came."""
        self.ledger.clear()
        return Response(status_code=204)

    async def show_outage(self, _request: Request) -> Response:
        """Returns whether an outage is on."""
        return JSONResponse({"on": self.outage.on, "status": self.outage.status})

    async def switch_outage(self, request: Request) -> Response:
        """Starts or ends an outage."""
        status = int(number_in_query(request, "status", 503))
        self.outage = Outage(on=request.path_params["switch"] == "on", status=status)
        return await self.show_outage(request)

    async def misbehave(self, request: Request) -> Response:
        """Gives the first tries of a key the trouble of the path, and `then` or the echo to later ones."""
        trouble = TROUBLES.get(request.path_params["trouble"])
        if trouble is None:
            raise HTTPException(404, f"no such trouble; there are {', '.join(TROUBLES)}")
        in_trouble = request.state.arrived.number <= request.path_params["times"]
        if in_trouble or "then" not in request.query_params:
            return await (trouble if in_trouble else echo)(request)
        return await answer_status(request, int(number_in_query(request, "then", 200)))

    async def always(self, request: Request) -> Response:
        """Answers every try with the status in the path."""
        return await answer_status(request, request.path_params["code"])

    async def limit(self, request: Request) -> Response:
        """Answers so many tries of each window with the echo and others with 429; each says what is left."""
        most, seconds = request.path_params["calls"], number_in_query(request, "seconds", 10)
        now, name = datetime.now(UTC), str(request.url)
        window = self.windows.get(name)
        if window is None or window.until <= now:
            window = self.windows[name] = Window(now + timedelta(seconds=seconds))
        window.calls += 1
        resets_in = ceil((window.until - now).total_seconds())
        answer = await echo(request) if window.calls <= most else refusal(429)
        answer.headers["RateLimit"] = f'"calls";r={max(0, most - window.calls)};t={resets_in}'
        answer.headers["RateLimit-Policy"] = f'"calls";q={most};w={ceil(seconds)}'
        return answer

    async def during_outage(self, request: Request) -> Response:
        """Fails as the outage says."""
        if self.outage.status == DROP_THE_CONNECTION:
            await cut(request)
            return Response()
        await request.body()
        return refusal(self.outage.status)

    def recorded(
        self, handle: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Wraps a handler so that each request is counted when it arrives, whatever becomes of it."""

        async def record_and_handle(request: Request) -> Response:
            key = request.headers.get(KEY_HEADER, "")
            request.state.arrived = self.ledger.arrive(
                key,
                method=request.method,
                path=request.url.path,
                query=request.url.query,
                headers=dict(request.headers),
            )
            try:
                return await (self.during_outage if self.outage.on else handle)(request)
            finally:
                self.ledger.leave(key)

        return record_and_handle


def explain(_request: Request, error: Exception) -> Response:
    """Answers 400 when an instruction makes no sense."""
    return JSONResponse({"title": "Bad instruction", "detail": str(error), "status": 400}, status_code=400)


def make_app() -> Starlette:
    """Returns a new target with empty counts."""
    target = FlakyTarget()
    return Starlette(
        routes=[
            Route("/counts", target.show_counts, methods=["GET"]),
            Route("/counts", target.clear_counts, methods=["DELETE"]),
            Route("/counts/{key:path}", target.show_key, methods=["GET"]),
            Route("/outage", target.show_outage, methods=["GET"]),
            Route("/outage/{switch:str}", target.switch_outage, methods=["PUT"]),
            Route("/echo", target.recorded(echo), methods=METHODS),
            Route("/token", target.recorded(token), methods=["POST"]),
            Route("/status/{code:int}", target.recorded(target.always), methods=METHODS),
            Route("/quota/{calls:int}", target.recorded(target.limit), methods=METHODS),
            Route("/{trouble:str}/{times:int}", target.recorded(target.misbehave), methods=METHODS),
        ],
        exception_handlers={BadInstructionError: explain},
    )
