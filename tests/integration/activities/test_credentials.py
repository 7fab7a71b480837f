import asyncio
import json
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import durable_retry
from durable_retry.attempt import http_client
from durable_retry.attempt.http_client import close_clients
from durable_retry.attempt.http_request import Plan, attempt_request, start_clock
from durable_retry.base.names import Category
from durable_retry.features.handlers.handler import attempt_handler
from durable_retry.features.handlers.registry import handler_of
from durable_retry.handlers import Call
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.runtime import clock
from durable_retry.settings.configuration import find_dependency, using
from tests.support.builders import an_operation
from tests.support.certificates import SelfSigned, for_known_clients, make_self_signed
from tests.support.narrowing import existing

type Answer = tuple[int, dict[str, Any]]


@dataclass
class Server:
    """A server on loopback.

    Attributes:
        answers: Status and body of each request, in their order; the last one goes on.
        heads: The heads of the requests, in lower case.
        arrived: Whether there was one.
        may_answer: Is waited for before each answer.
    """

    answers: list[Answer]
    url: str = ""
    heads: list[str] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    def given_credentials(self) -> list[str]:
        return [head.partition("authorization: ")[2].partition("\r\n")[0] for head in self.heads]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = head.partition("content-length: ")[2].partition("\r\n")[0]
                await reader.readexactly(int(length or 0))
                self.heads.append(head)
                self.arrived.set()
                await self.may_answer.wait()
                status, document = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                body = json.dumps(document).encode()
                writer.write(b"HTTP/1.1 %d -\r\nContent-Type: application/json\r\n" % status)
                writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()


@asynccontextmanager
async def serving(*answers: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """Serve in the block; at its end the app's connections are closed."""
    server = Server(list(answers))
    server.may_answer.set()
    listening = await asyncio.start_server(server.handle, "127.0.0.1", 0, ssl=tls)
    port = listening.sockets[0].getsockname()[1]
    server.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    try:
        yield server
    finally:
        server.may_answer.set()
        await close_clients()
        listening.close()


def token(text: str, seconds: float = 3600) -> Answer:
    return 200, {"access_token": text, "token_type": "Bearer", "expires_in": seconds}


OK: Answer = (200, {})


@contextmanager
def configured(server: Server | str, keys: str, seconds: float = 5) -> Iterator[None]:
    url = server if isinstance(server, str) else server.url
    timeouts = f"timeouts = {{ attempt_seconds = {seconds}, connect_seconds = {seconds / 2} }}"
    text = f'[dependencies.payments]\nbase_url = "{url}"\n{timeouts}\n{keys}'
    with using(parse_config(text, {"SECRET": "sesame-open"})):
        yield


def by_oauth(service: Server) -> str:
    client = 'client_id = "app", client_secret = "${SECRET}"'
    return f'auth = {{ oauth = {{ token_url = "{service.url}/token", {client} }} }}'


def a_plan(**changes: Any) -> Plan:
    dependency = existing(find_dependency("payments"))
    operation = an_operation(timeouts=dependency.timeouts, deadline_at=None, **changes)
    return Plan(operation, 1, dependency, start_clock(operation))


async def attempt() -> AttemptOutcome:
    return await attempt_request(a_plan())


async def test_attempts_at_once_share_one_token_until_it_ends() -> None:
    async with serving(token("first"), token("second")) as service, serving(OK) as payments:
        service.may_answer.clear()
        with configured(payments, by_oauth(service)):
            pending = [asyncio.create_task(attempt()) for _ in range(3)]
            await service.arrived.wait()
            service.may_answer.set()
            assert [(await each).category for each in pending] == [None] * 3
            assert payments.given_credentials() == ["bearer first"] * 3
            with clock.reading(lambda: datetime.now(UTC), lambda: time.monotonic() + 3600):
                assert (await attempt()).category is None
        assert payments.given_credentials()[-1] == "bearer second"
        assert len(service.heads) == 2


async def test_a_token_that_was_taken_back_is_fetched_anew_within_the_attempt() -> None:
    async with serving(token("first"), token("second")) as service, serving((401, {}), OK) as payments:
        with configured(payments, by_oauth(service)):
            assert (await attempt()).category is None
        assert payments.given_credentials() == ["bearer first", "bearer second"]


async def test_a_token_service_that_is_down_sends_nothing_and_counts_nothing() -> None:
    async with serving((500, {}), token("first")) as service, serving(OK) as payments:
        with configured(payments, by_oauth(service)):
            outcome = await attempt()
        assert (outcome.category, outcome.counted) == (Category.TRANSIENT, False)
        assert outcome.error == "the token service of payments answers 500"
        assert payments.heads == []
    with configured("http://127.0.0.1:9", by_oauth(service)):
        outcome = await attempt()
    assert outcome.is_own_failure
    assert (outcome.error or "").startswith("the token service of payments fails: ConnectError")
    await close_clients()


async def test_a_slow_token_service_takes_half_of_an_attempt_at_most() -> None:
    async with serving(token("late")) as service, serving(OK) as payments:
        service.may_answer.clear()
        with configured(payments, by_oauth(service), seconds=0.2):
            outcome = await attempt()
        assert outcome.is_own_failure
        assert outcome.error == "the token service of payments fails: TimeoutError: no answer within 0.1 s"
        assert payments.heads == []


async def test_a_refused_secret_is_a_refused_credential() -> None:
    async with serving((401, {"error": "invalid_client"})) as service, serving(OK) as payments:
        with configured(payments, by_oauth(service)):
            outcome = await attempt()
        assert outcome.refuses_credential
        assert outcome.error == "the token service of payments answers 401: invalid_client"
        assert "sesame" not in f"{outcome}"


async def pay(call: Call) -> int:
    answer = await call.client.post("/charges", json={})
    return answer.status_code


@pytest.mark.usefixtures("no_handlers")
async def test_the_client_of_a_handler_signs_in_too() -> None:
    durable_retry.operation("pay", dependency="payments")(pay)
    handler = handler_of(pay)
    async with serving((503, {}), token("first")) as service, serving(OK) as payments:
        with configured(payments, by_oauth(service)):
            failed = await attempt_handler(a_plan(handler="pay", input={}), handler)
        assert (failed.category, failed.counted) == (Category.TRANSIENT, False)
        assert failed.error == "the token service of payments answers 503"
        with configured(payments, by_oauth(service)):
            assert (await attempt_handler(a_plan(handler="pay", input={}), handler)).result == {"value": 200}
        assert payments.given_credentials() == ["bearer first"]


IDENTITY = 'auth = { identity = "api://payments/.default", client_id = "user-assigned" }'


async def test_the_identity_of_the_app_gives_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    given = (200, {"access_token": "of-the-app", "expires_on": str(int(time.time()) + 3600)})
    async with serving(given) as endpoint, serving(OK) as payments:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{endpoint.url}/msi")
        monkeypatch.setenv("IDENTITY_HEADER", "the header")
        with configured(payments, IDENTITY):
            for _ in range(2):
                assert (await attempt()).category is None
        assert payments.given_credentials() == ["bearer of-the-app"] * 2
        (asked,) = endpoint.heads
        assert "resource=api://payments&client_id=user-assigned" in asked


async def test_an_app_without_an_identity_waits_as_in_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = (400, {"statusCode": 400, "message": "no identity is assigned"})
    async with serving(refusal) as endpoint, serving(OK) as payments:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{endpoint.url}/msi")
        monkeypatch.setenv("IDENTITY_HEADER", "the header")
        with configured(payments, IDENTITY):
            outcome = await attempt()
        assert outcome.is_own_failure
        assert "no identity is assigned" in (outcome.error or "")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SelfSigned:
    """A certificate that the servers here have, and the app trusts."""
    made = make_self_signed(tmp_path)
    monkeypatch.setattr(http_client, "_new_tls", lambda: ssl.create_default_context(cafile=made.certificate))
    return made


def showing(shown: SelfSigned) -> str:
    return f'tls = {{ certificate = "{shown.certificate}", key = "{shown.key}" }}'


async def test_a_server_that_asks_for_a_certificate_gets_it(files: SelfSigned, tmp_path: Path) -> None:
    (tmp_path / "client").mkdir()
    client = make_self_signed(tmp_path / "client")
    async with serving(OK, tls=for_known_clients(files, client)) as payments:
        with configured(payments, showing(client)):
            assert (await attempt()).category is None
        with configured(payments, ""):
            assert (await attempt()).category is Category.TRANSIENT
        assert len(payments.heads) == 1


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_certificate_that_is_not_trusted_is_a_refused_credential(
    files: SelfSigned, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    (tmp_path / "client").mkdir()
    client = make_self_signed(tmp_path / "client")
    context = for_known_clients(files, files)
    context.maximum_version = version
    listening = socket.create_server(("127.0.0.1", 0))

    def refuse() -> None:
        # Not by asyncio, which closes before the alert is sent; read to the end, or it is lost with a reset.
        accepted, _ = listening.accept()
        connection = context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
        with suppress(ssl.SSLError):
            connection.do_handshake()
        with socket.socket(fileno=connection.detach()) as plain:
            while plain.recv(4096):
                pass

    refusing = threading.Thread(target=refuse)
    refusing.start()
    with configured(f"https://127.0.0.1:{listening.getsockname()[1]}", showing(client)):
        outcome = await attempt()
    await asyncio.to_thread(refusing.join)
    await close_clients()
    listening.close()
    assert outcome.refuses_credential
    assert (outcome.error or "").startswith("payments refuses the app's certificate")


def serving_with(own: SelfSigned) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    return context


async def test_a_private_authority_is_trusted_where_it_is_named(tmp_path: Path) -> None:
    own = make_self_signed(tmp_path)
    async with serving(OK, tls=serving_with(own)) as payments:
        with configured(payments, ""):
            outcome = await attempt()
        assert outcome.category is Category.TRANSIENT
        assert "CERTIFICATE_VERIFY_FAILED" in (outcome.error or "")
        with configured(payments, f'ca = "{own.certificate}"'):
            assert (await attempt()).category is None
        assert len(payments.heads) == 1


async def test_a_token_service_is_trusted_by_the_authority_of_its_dependency(tmp_path: Path) -> None:
    own = make_self_signed(tmp_path)
    token = (200, {"access_token": "t", "token_type": "Bearer", "expires_in": 60})
    async with (
        serving(token, tls=serving_with(own)) as tokens,
        serving(OK, tls=serving_with(own)) as payments,
    ):
        oauth = f'token_url = "{tokens.url}/token", client_id = "app", client_secret = "s"'
        with configured(payments, f'auth = {{ oauth = {{ {oauth} }} }}\nca = "{own.certificate}"'):
            assert (await attempt()).category is None
        assert payments.given_credentials() == ["bearer t"]


async def test_a_certificate_of_another_authority_is_still_refused(tmp_path: Path) -> None:
    own = make_self_signed(tmp_path)
    (tmp_path / "other").mkdir()
    other = make_self_signed(tmp_path / "other")
    async with serving(OK, tls=serving_with(own)) as payments:
        with configured(payments, f'ca = "{other.certificate}"'):
            assert (await attempt()).category is Category.TRANSIENT
        assert payments.heads == []
