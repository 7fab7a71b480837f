import asyncio
import gc
import socket
from typing import Any, cast

import httpx
import pytest

from onebox.host_json import Http
from onebox.http.access import Browsers
from onebox.http.functions import HttpFunctions, endpoints
from onebox.http.keys import Keys, Level
from onebox.http.server import Application, base_url, bind
from onebox.worker.functions import Binding, Catalogue, Function
from onebox.worker.runner import Failure, FunctionFailedError


class Bound(socket.socket):
    """A socket that claims to be bound to an address which this machine need not have."""

    name: tuple[object, ...] = ()

    def getsockname(self) -> tuple[object, ...]:
        return self.name


@pytest.mark.parametrize(
    ("name", "url"),
    [
        (("127.0.0.1", 7071), "http://127.0.0.1:7071"),
        (("0.0.0.0", 80), "http://127.0.0.1:80"),  # noqa: S104 # an address to test with
        (("192.168.1.2", 1), "http://192.168.1.2:1"),
        (("::1", 7071, 0, 0), "http://[::1]:7071"),
        (("::", 7071, 0, 0), "http://[::1]:7071"),
        (("fe80::1%eth0", 7071, 0, 2), "http://[fe80::1%eth0]:7071"),
    ],
)
def test_the_url_is_one_that_this_machine_reaches(name: tuple[object, ...], url: str) -> None:
    with Bound() as listener:
        listener.name = name
        assert base_url(listener) == url


def test_port_0_takes_a_free_one() -> None:
    with bind("127.0.0.1", 0) as listener:
        assert base_url(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"


class Failing:
    """A runner, and the inputs, of functions that fail."""

    def of(self, _: Function) -> tuple[()]:
        return ()

    async def run(self, *_: object, **__: object) -> None:
        raise FunctionFailedError(Failure("ValueError", "a secret", ""))


def functions(*names: str) -> HttpFunctions:
    """Functions that fail, at routes of their names, which are levels of keys, too."""
    found = []
    for name in names:
        properties = {"route": name, "methods": ["GET"], "authLevel": name}
        trigger = Binding("req", "httpTrigger", is_output=False, properties=properties)
        found.append(Function(name, name, trigger, (trigger,)))
    failing = cast("Any", Failing())
    return HttpFunctions(endpoints(Catalogue(found), Http()), failing, failing, failing, Http())


async def test_a_function_that_fails_after_its_caller_hung_up_is_no_error_of_the_host(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun, go, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def run(*_: object, **__: object) -> None:
        begun.set()
        await go.wait()
        ended.set()
        raise FunctionFailedError(Failure("ValueError", "a secret", ""))

    monkeypatch.setattr(Failing, "run", run)
    keys, served = Keys({level: level.value for level in Level}), functions(Level.ANONYMOUS)
    application = Application(served, cast("Any", None), keys, Browsers("127.0.0.1"), 10)
    application.accepting = True
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        asked = asyncio.create_task(client.get("/api/anonymous"))
        async with asyncio.timeout(60):
            await begun.wait()
        asked.cancel()
        await asyncio.wait([asked])
    go.set()
    await ended.wait()
    await asyncio.sleep(0)
    gc.collect()
    assert "never retrieved" not in caplog.text


@pytest.mark.parametrize(
    ("status", "method", "path", "headers"),
    [
        (404, "GET", "/api/nothing", {}),
        (404, "POST", "/", {}),
        (401, "GET", "/api/function", {}),
        (401, "GET", "/api/function?code=f", {"x-functions-key": "s"}),
        (401, "GET", "/admin/functions", {}),
        (401, "GET", "/runtime/webhooks/durabletask/instances", {}),
        (403, "GET", "/api/function", {"Host": "evil.example"}),
        (403, "GET", "/api/nothing", {"Origin": "https://evil.example"}),
        (415, "POST", "/admin/functions/x", {"Content-Length": "1"}),
        (413, "POST", "/api/function", {"Content-Length": "11"}),
        (500, "GET", "/api/anonymous", {}),
        (503, "GET", "/api/anonymous", {}),
    ],
)
async def test_no_answer_of_its_own_is_kept_or_taken_for_another_type(
    status: int, method: str, path: str, headers: dict[str, str]
) -> None:
    keys = Keys({level: level.value[0] for level in (Level.FUNCTION, Level.SYSTEM, Level.ADMIN)})
    served = functions(Level.ANONYMOUS, Level.FUNCTION)
    application = Application(served, cast("Any", None), keys, Browsers("127.0.0.1"), 10)
    application.webhooks["/runtime/webhooks/durabletask"] = cast("Any", None)
    application.accepting = status != 503
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        answer = await client.request(method, path, headers=headers)
    assert answer.status_code == status
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
