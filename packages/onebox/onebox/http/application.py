"""The one ASGI application: functions, the host's own endpoints, and the extensions' webhooks."""

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from onebox.http.access import Browsers, Keys, Level
from onebox.http.admin import Admin
from onebox.http.functions import HttpFunctions
from onebox.http.messages import raw_path

Webhook = Callable[[Request], Awaitable[Response]]

_OPEN = {"/admin/host/status", "/admin/host/ping"}
_HOME = "Your function app is up and running on onebox.\n"


class Application:
    """Checks each request and passes it to the handler of its path."""

    def __init__(self, functions: HttpFunctions, admin: Admin, keys: Keys, browsers: Browsers) -> None:
        self._functions = functions
        self._admin = admin
        self._keys = keys
        self._browsers = browsers
        self.webhooks: dict[str, Webhook] = {}
        self.accepting = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; websockets are refused, which the host does not have either."""
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        request = Request(scope, receive)
        refusal = self._browsers.refusal(request)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        try:
            response = await self._answer(request)
        except asyncio.CancelledError:  # the server stops; the task ends here anyway
            response = _unavailable()
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> ASGIApp:
        path = raw_path(request)
        if path.lower().startswith("/admin/"):
            return await self._admin.answer(request) if self._may_administer(request) else _refused()
        if not self.accepting:
            return _unavailable()
        for prefix, webhook in self.webhooks.items():
            if path.lower().startswith(prefix):
                let_in = _is_handshake(request) or self._keys.let_in(request, Level.SYSTEM)
                return await webhook(request) if let_in else _refused()
        found = self._functions.find(request.method, path)
        if found is not None:
            let_in = self._keys.let_in(request, found[0].level)
            return await self._functions.answer(request, *found) if let_in else _refused()
        if path == "/" and request.method in {"GET", "HEAD"}:
            return PlainTextResponse(_HOME)
        return Response(status_code=404)

    def _may_administer(self, request: Request) -> bool:
        """Whoever waits for us to serve may ask whether we do; all else needs the master key."""
        return request.url.path.lower() in _OPEN or self._keys.let_in(request, Level.ADMIN)


def _is_handshake(request: Request) -> bool:
    """CloudEvents' handshake carries no key of ours."""
    return request.method == "OPTIONS"


def _unavailable() -> Response:
    return Response(status_code=503, headers={"Retry-After": "1"})


def _refused() -> Response:
    return Response(status_code=401)
