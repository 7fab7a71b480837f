"""The one ASGI application: functions, the host's own endpoints, and the extensions' webhooks."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from onebox.http.admin import Admin
from onebox.http.functions import HttpFunctions
from onebox.http.messages import raw_path

Webhook = Callable[[Request], Awaitable[Response]]

_HOME = "Your function app is up and running on onebox.\n"


class Application:
    """Sends each request to who answers it."""

    def __init__(self, functions: HttpFunctions, admin: Admin) -> None:
        self._functions = functions
        self._admin = admin
        self.webhooks: dict[str, Webhook] = {}
        self.accepting = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; websockets are refused, which the host does not have either."""
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        request = Request(scope, receive)
        response = await self._answer(request)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path = raw_path(request)
        if path.lower().startswith("/admin/"):
            return await self._admin.answer(request)
        if not self.accepting:
            return Response(status_code=503, headers={"Retry-After": "1"})
        for prefix, webhook in self.webhooks.items():
            if path.lower().startswith(prefix):
                return await webhook(request)
        found = self._functions.find(request.method, path)
        if found is not None:
            return await self._functions.answer(request, *found)
        if path == "/" and request.method in {"GET", "HEAD"}:
            return PlainTextResponse(_HOME)
        return Response(status_code=404)
