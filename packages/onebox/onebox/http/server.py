"""The web server: a socket, bound early, uvicorn on it, and the one ASGI application.

The application passes each request to the functions, to the webhooks of the extensions, or to the host's own
endpoints under /admin: is it up, what does it run, run this now.
"""

import asyncio
import contextlib
import errno
import ipaddress
import json
import socket
from collections.abc import Awaitable, Callable, Generator, Mapping
from http import HTTPStatus
from typing import Any, Final

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from onebox import CannotStartError, __version__
from onebox.clock import Clock
from onebox.http.access import Browsers
from onebox.http.connections import KEEP_ALIVE_SECONDS, Config, ConnectionLimits, Protocol
from onebox.http.functions import Endpoint, HttpFunctions
from onebox.http.keys import Keys, Level, SeveralKeysError
from onebox.http.messages import BodyTooLargeError, bounded, declares_more, raw_path, refusal
from onebox.triggers.manual import ManualTriggers
from onebox.worker.functions import HTTP_TRIGGER, Catalogue, Function

BACKLOG: Final = 2048
"""How many connections wait until they are accepted."""
# The major version of the Functions host whose behaviour onebox follows; tools compare it.
_HOST_VERSION = "4.0.1"

Webhook = Callable[[Request], Awaitable[Response]]

# What is answered without a key.
_OPEN = {"/admin/host/status", "/admin/host/ping"}
_HOME = "Your function app is up and running on onebox.\n"


def bind(host: str, port: int) -> socket.socket:
    """Take the port before anything else is started; connections are refused until the server listens.

    Args:
        host: A name or an address of this machine.
        port: 0 takes a free one.

    Raises:
        CannotStartError: The port is in use, or the address is not this machine's.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, proto)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise CannotStartError(_obstacle(host, port, error)) from None
    return listener


def _obstacle(host: str, port: int, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"port {port} is in use; choose another with --port"
        case errno.EACCES:
            return f"port {port} is for root only; choose another with --port"
    return f"cannot listen on {host}: {error.strerror}; choose another address with --host"


def base_url(listener: socket.socket) -> str:
    """Return where a caller on this machine reaches a bound socket."""
    host, port = listener.getsockname()[:2]
    address = ipaddress.ip_address(host.partition("%")[0])
    if address.is_unspecified:
        host = "127.0.0.1" if address.version == 4 else "::1"  # noqa: PLR2004 # versions of IP
    return f"http://[{host}]:{port}" if address.version == 6 else f"http://{host}:{port}"  # noqa: PLR2004


class _Server(uvicorn.Server):
    """Installs no signal handlers: the host has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class WebServer:
    """Serves an application until it is stopped."""

    def __init__(
        self,
        application: ASGIApp,
        listener: socket.socket,
        stop_seconds: int,
        limits: ConnectionLimits | None = None,
    ) -> None:
        config = Config(
            application,
            limits or ConnectionLimits.of_this_process(),
            http=Protocol,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            ws="none",
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=stop_seconds,
        )
        self._server = _Server(config)
        self._listener = listener

    async def serve(self) -> None:
        """Serve until `stop`."""
        await self._server.serve(sockets=[self._listener])

    def stop(self) -> None:
        """Have the server take no new connections, give requests under way their time, and end."""
        self._server.should_exit = True


class Admin:
    """Answers requests whose path begins with /admin/."""

    def __init__(
        self,
        catalogue: Catalogue,
        endpoints: tuple[Endpoint, ...],
        manual: ManualTriggers,
        *,
        storage: Mapping[str, str],
        trouble: Callable[[], str],
        clock: Clock,
        workers: Callable[[], list[Mapping[str, Any]]] | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._templates = {each.function.name: each.template.text for each in endpoints}
        self._manual = manual
        self._storage = storage
        self._trouble = trouble
        self._workers = workers
        self._clock = clock
        self._started = clock.monotonic()
        self._tasks: set[asyncio.Task[None]] = set()
        self.state = "Running"

    async def answer(self, request: Request, *, authorised: bool) -> Response:
        """Answer a request; 404 for what the host does not have.

        Args:
            request: Its path begins with /admin/.
            authorised: Whether its caller may administer; without that it is one that anybody may make, and
                its answer says nothing of where storage is.
        """
        match request.url.path.lower().strip("/").split("/")[1:]:
            case ["host", "status"] if request.method == "GET":
                return JSONResponse(self._status(authorised=authorised))
            case ["host", "ping"] if request.method in {"GET", "POST"}:
                return Response()
            case ["functions"] if request.method == "GET":
                return JSONResponse([self._describe(each, request) for each in self._catalogue])
            case ["functions", name, *rest] if function := self._catalogue.find(name):
                return await self._answer_for(function, rest, request)
        return refusal(404)

    async def _answer_for(self, function: Function, rest: list[str], request: Request) -> Response:
        match request.method, rest:
            case "GET", []:
                return JSONResponse(self._describe(function, request))
            case "GET", ["status"]:
                return JSONResponse({})
            case "POST", []:
                return await self._fire(function, request)
        return refusal(404)

    def _status(self, *, authorised: bool) -> Mapping[str, Any]:
        trouble = self._trouble()
        workers = {} if self._workers is None else {"workers": self._workers()}
        return {
            **workers,
            "id": f"onebox-{socket.gethostname()}",
            "state": "Error" if trouble and self.state == "Running" else self.state,
            "errors": [trouble] if trouble else [],
            "version": _HOST_VERSION,
            "versionDetails": f"onebox {__version__}",
            "instanceId": socket.gethostname(),
            "computerName": socket.gethostname(),
            **({"storage": self._storage} if authorised else {}),
            "processUptime": round((self._clock.monotonic() - self._started) * 1000),
        }

    def _describe(self, function: Function, request: Request) -> Mapping[str, Any]:
        origin = f"{request.url.scheme}://{request.url.netloc}"
        template = self._templates.get(function.name)
        bindings = [dict(each.properties) for each in function.bindings]
        return {
            "name": function.name,
            "href": f"{origin}/admin/functions/{function.name}",
            "invoke_url_template": None if template is None else f"{origin}/{template}",
            "language": "python",
            "isDisabled": False,
            "config": {"name": function.name, "language": "python", "bindings": bindings},
        }

    async def _fire(self, function: Function, request: Request) -> Response:
        if function.trigger.type == HTTP_TRIGGER:
            return refusal(400, {"error": f"{function.name} has an HTTP trigger: call its route"})
        try:
            given, properties = _order(await request.body())
        except (ValueError, RecursionError):
            text = 'the body must be JSON: {"input": ...}, or {"input": ..., "metadata": {...}}'
            return refusal(400, {"error": text})
        run = self._manual.prepare(function, given, properties)
        if run is None:
            text = (
                f"{function.name} has a trigger of type {function.trigger.type}: only the task hub fires it"
            )
            return refusal(400, {"error": text})
        task = asyncio.ensure_future(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return Response(status_code=202)


def _order(body: bytes) -> tuple[Any, Mapping[str, Any]]:
    """Return the input and the metadata with which a function is fired by hand.

    Raises:
        ValueError: The body is no JSON object, or its metadata are none.
    """
    order = json.loads(body or b"{}")
    properties = (order.get("metadata") or {}) if isinstance(order, dict) else None
    if not isinstance(properties, dict):
        raise ValueError("no object")  # noqa: TRY004 - as what is no JSON
    return order.get("input"), properties


class Application:
    """Checks each request and passes it, with a body up to the limit, to the handler of its path."""

    def __init__(
        self, functions: HttpFunctions, admin: Admin, keys: Keys, browsers: Browsers, body_limit_bytes: int
    ) -> None:
        self._functions = functions
        self._admin = admin
        self._keys = keys
        self._browsers = browsers
        self._body_limit_bytes = body_limit_bytes
        self.webhooks: dict[str, Webhook] = {}
        self.accepting = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; websockets are refused, which the host does not have either."""
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        receive = bounded(receive, self._body_limit_bytes)
        request = Request(scope, receive)
        try:
            response = self._browsers.refusal(request) or await self._answer(request)
        except asyncio.CancelledError:  # the server stops; the task ends here anyway
            response = _unavailable()
        except BodyTooLargeError:
            response = refusal(413)
        except SeveralKeysError as error:
            response = _problem_response(401, str(error))
        except ClientDisconnect:
            response = refusal(400)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> ASGIApp:
        if declares_more(request, self._body_limit_bytes):
            raise BodyTooLargeError
        path = raw_path(request)
        if path.lower().startswith("/admin/"):
            return await self._administer(request)
        if not self.accepting:
            return _unavailable()
        for prefix, webhook in self.webhooks.items():
            if path.lower().startswith(prefix):
                let_in = _is_handshake(request) or self._keys.let_in(request, Level.SYSTEM)
                return await webhook(request) if let_in else refusal(401)
        found = self._functions.find(request.method, path)
        if found is not None:
            let_in = self._keys.let_in(request, found[0].level)
            return await self._functions.answer(request, *found) if let_in else refusal(401)
        if path == "/" and request.method in {"GET", "HEAD"}:
            return PlainTextResponse(_HOME)
        return refusal(404)

    async def _administer(self, request: Request) -> Response:
        """Whoever waits for us to serve may ask whether we do; all else needs the master key."""
        authorised = self._keys.let_in(request, Level.ADMIN)
        if authorised or request.url.path.lower() in _OPEN:
            return await self._admin.answer(request, authorised=authorised)
        return refusal(401)


def _is_handshake(request: Request) -> bool:
    """CloudEvents' handshake carries no key of ours."""
    return request.method == "OPTIONS"


def _unavailable() -> Response:
    response = refusal(503)
    response.headers["Retry-After"] = "1"
    return response


def _problem_response(status: int, detail: str) -> Response:
    """Return a problem document (RFC 9457): for what the host lets through; its own refusals are empty."""
    document = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    return refusal(status, document, "application/problem+json")
