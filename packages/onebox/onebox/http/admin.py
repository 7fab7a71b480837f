"""The host's own endpoints under /admin: is it up, what does it run, run this now."""

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from onebox import __version__
from onebox.clock import Clock
from onebox.http.functions import Endpoint
from onebox.triggers.manual import ManualTriggers
from onebox.worker.functions import HTTP_TRIGGER, Catalogue, Function

# The major version of the Functions host whose behaviour onebox follows; tools compare it.
_HOST_VERSION = "4.0.1"


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
    ) -> None:
        self._catalogue = catalogue
        self._templates = {each.function.name: each.template.text for each in endpoints}
        self._manual = manual
        self._storage = storage
        self._trouble = trouble
        self._clock = clock
        self._started = clock.monotonic()
        self._tasks: set[asyncio.Task[None]] = set()
        self.state = "Initialized"

    async def answer(self, request: Request) -> Response:
        """Answer a request; 404 for what the host does not have."""
        match request.url.path.lower().strip("/").split("/")[1:]:
            case ["host", "status"] if request.method == "GET":
                return JSONResponse(self._status())
            case ["host", "ping"] if request.method in {"GET", "POST"}:
                return Response()
            case ["functions"] if request.method == "GET":
                return JSONResponse([self._describe(each, request) for each in self._catalogue])
            case ["functions", name, *rest] if function := self._catalogue.find(name):
                return await self._answer_for(function, rest, request)
        return Response(status_code=404)

    async def _answer_for(self, function: Function, rest: list[str], request: Request) -> Response:
        match request.method, rest:
            case "GET", []:
                return JSONResponse(self._describe(function, request))
            case "GET", ["status"]:
                return JSONResponse({})
            case "POST", []:
                return await self._fire(function, request)
        return Response(status_code=404)

    def _status(self) -> Mapping[str, Any]:
        trouble = self._trouble()
        return {
            "id": f"onebox-{socket.gethostname()}",
            "state": "Error" if trouble and self.state == "Running" else self.state,
            "errors": [trouble] if trouble else [],
            "version": _HOST_VERSION,
            "versionDetails": f"onebox {__version__}",
            "instanceId": socket.gethostname(),
            "computerName": socket.gethostname(),
            "storage": self._storage,
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
            return JSONResponse(
                {"error": f"{function.name} has an HTTP trigger: call its route"}, status_code=400
            )
        try:
            body = json.loads(await request.body() or b"{}")
        except ValueError:
            return JSONResponse({"error": 'the body must be JSON: {"input": ...}'}, status_code=400)
        fields = body if isinstance(body, dict) else {}
        properties = fields.get("metadata")
        run = self._manual.prepare(
            function, fields.get("input"), properties if isinstance(properties, dict) else {}
        )
        if run is None:
            text = f"a {function.trigger.type} cannot be fired by hand"
            return JSONResponse({"error": text}, status_code=400)
        task = asyncio.ensure_future(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return Response(status_code=202)
