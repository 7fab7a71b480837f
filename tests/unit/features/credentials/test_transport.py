import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest
from azure.core.exceptions import ClientAuthenticationError

from durable_retry.attempt.admission import health_shown_by
from durable_retry.attempt.excerpts import credentials_of
from durable_retry.attempt.http_client import (
    CredentialRefusedError,
    SignInError,
    close_clients,
    make_client,
    sending_over,
    transport_of,
)
from durable_retry.attempt.http_pool import PROGRESS
from durable_retry.attempt.http_request import Plan, attempt_request, start_clock
from durable_retry.base.names import Category
from durable_retry.features.credentials import services
from durable_retry.features.credentials.tokens import Token, Tokens, bearer
from durable_retry.features.credentials.transport import CertifiedTransport, show_certificate, signed
from durable_retry.rules.circuit.calls import CallHealth
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.runtime import clock
from durable_retry.settings.storage_account import ManagedIdentity
from tests.support.builders import NOON, an_operation
from tests.support.certificates import make_self_signed

TOKEN_URL = "https://id.example.com/token"
OAUTH = (
    f'auth = {{ oauth = {{ token_url = "{TOKEN_URL}", client_id = "app 1",'
    ' client_secret = "${SECRET}", scope = "charge" } }'
)


def a_dependency(keys: str = OAUTH) -> Dependency:
    text = f'[dependencies.payments]\nbase_url = "https://payments.example.com"\n{keys}'
    return parse_config(text, {"SECRET": "sesame/open"}).dependencies["payments"]


def token_of(number: int) -> dict[str, Any]:
    return {"access_token": f"token-{number:05}", "token_type": "Bearer", "expires_in": 3600}


@dataclass
class World:
    """A token service and a dependency that takes its newest token, on a clock of their own.

    Attributes:
        seconds: Of the clock.
        given: How many tokens there were.
        asked: The requests to the token service.
        sent: The `Authorization` of each request to the dependency.
        answers: What the token service answers first, in their order.
    """

    seconds: float = 1_000.0
    given: int = 0
    asked: list[httpx.Request] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    answers: list[httpx.Response | Exception] = field(default_factory=list)
    refuses: Callable[[str], bool] = lambda _: False

    async def answer(self, request: httpx.Request) -> httpx.Response:
        if str(request.url) != TOKEN_URL:
            request.extensions[PROGRESS].sent = True
            self.sent.append(authorization := request.headers["authorization"])
            await asyncio.sleep(0)
            return httpx.Response(401 if self.refuses(authorization) else 200, text=authorization)
        self.asked.append(request)
        await asyncio.sleep(0)
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        self.given += 1
        return httpx.Response(200, json=token_of(self.given))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    with (
        clock.reading(lambda: NOON, lambda: world.seconds),
        sending_over(lambda called: signed(called, httpx.MockTransport(world.answer))),
    ):
        yield world
        await close_clients()


async def attempt(dependency: Dependency, **request: Any) -> AttemptOutcome:
    call = {"method": "POST", "path": "/charges", "query": {}, "headers": {}, "json": {"amount": 5}}
    operation = an_operation(request=call | request, deadline_at=None)
    return await attempt_request(Plan(operation, 1, dependency, start_clock(operation)))


async def begun_beside() -> None:
    """Wait for fetches that attempts did not wait for."""
    await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)


async def test_a_token_is_fetched_once_and_sent_until_shortly_before_its_end(world: World) -> None:
    dependency = a_dependency()
    for seconds in (0.0, 3_299.0, 1.5):
        world.seconds += seconds
        assert (await attempt(dependency)).category is None
    assert world.sent == ["Bearer token-00001"] * 3
    await begun_beside()
    assert (await attempt(dependency)).category is None
    assert (len(world.asked), world.sent[-1]) == (2, "Bearer token-00002")


async def test_who_asks_at_the_same_time_shares_one_fetch(world: World) -> None:
    dependency = a_dependency()
    outcomes = await asyncio.gather(*(attempt(dependency) for _ in range(5)))
    assert [outcome.category for outcome in outcomes] == [None] * 5
    assert len(world.asked) == 1


async def test_an_echoed_token_is_masked_also_the_one_before(world: World) -> None:
    dependency = a_dependency()
    result = (await attempt(dependency)).result
    assert (result["body"], result["masked"]) == ("***", ["/body"])
    world.seconds += 4_000
    await attempt(dependency)
    for number in (1, 2):
        assert credentials_of(dependency).masked(f"got token-{number:05}") == "got ***"


async def test_the_client_goes_in_the_header_and_where_that_is_refused_in_the_body(world: World) -> None:
    dependency = a_dependency()
    world.answers = [httpx.Response(401, json={"error": "invalid_client"})]
    assert (await attempt(dependency)).category is None
    world.seconds += 4_000
    await attempt(dependency)
    in_header, *in_body = world.asked
    expected = base64.b64encode(b"app+1:sesame%2Fopen").decode()
    assert in_header.headers["authorization"] == f"Basic {expected}"
    assert parse_qs(in_header.content.decode()) == {
        "grant_type": ["client_credentials"],
        "scope": ["charge"],
    }
    assert len(in_body) == 2
    for request in in_body:
        assert "authorization" not in request.headers
        assert parse_qs(request.content.decode())["client_secret"] == ["sesame/open"]


async def test_a_scope_may_be_left_out_and_so_may_the_tokens_life(world: World) -> None:
    dependency = a_dependency(OAUTH.replace(', scope = "charge"', ""))
    world.answers = [httpx.Response(200, json={"access_token": "token-0"})]
    await attempt(dependency)
    assert parse_qs(world.asked[0].content.decode()) == {"grant_type": ["client_credentials"]}
    world.seconds += 301
    await attempt(dependency)
    assert world.sent == ["Bearer token-0", "Bearer token-00001"]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (httpx.Response(503), "the token service of payments answers 503"),
        (httpx.Response(500, json={"error": "server_error"}), "answers 500: server_error"),
        (httpx.Response(429), "answers 429"),
        (httpx.ConnectError("no route"), "fails: ConnectError: no route"),
        (httpx.Response(200, json={"token": "sesame"}), "answers without a token"),
        (httpx.Response(200, json={"access_token": "a\nb"}), "answers without a token"),
        (httpx.Response(200, text="<html>"), "answers without a token"),
    ],
)
async def test_a_token_service_that_fails_is_an_outage_of_ours(
    world: World, answer: httpx.Response | Exception, says: str
) -> None:
    world.answers = [answer]
    outcome = await attempt(a_dependency())
    assert (outcome.category, outcome.counted, outcome.did_nothing) == (Category.TRANSIENT, False, True)
    assert (outcome.error or "").endswith(says)
    assert outcome.is_own_failure
    assert health_shown_by(outcome) is CallHealth.SILENT
    assert world.sent == []


async def test_a_failure_answers_for_a_second_and_then_the_service_is_asked_again(world: World) -> None:
    dependency = a_dependency()
    world.answers = [httpx.Response(503)]
    for _ in range(3):
        assert (await attempt(dependency)).error == "the token service of payments answers 503"
    assert len(world.asked) == 1
    world.seconds += 1
    assert (await attempt(dependency)).category is None


async def test_a_token_that_is_still_good_outlasts_an_outage(world: World) -> None:
    dependency = a_dependency()
    await attempt(dependency)
    world.seconds += 3_400
    world.answers = [httpx.Response(503)]
    for _ in range(3):
        assert (await attempt(dependency)).category is None
        await begun_beside()
    assert len(world.asked) == 2
    world.seconds += 10
    await attempt(dependency)
    await begun_beside()
    await attempt(dependency)
    assert (len(world.asked), world.sent[-1]) == (3, "Bearer token-00002")


@pytest.mark.parametrize("status", [400, 401, 403, 404])
async def test_a_refused_client_is_a_refused_credential(world: World, status: int) -> None:
    world.answers = [httpx.Response(status, json={"error": "invalid_client"})] * 2
    outcome = await attempt(a_dependency())
    assert outcome.refuses_credential
    assert outcome.error == f"the token service of payments answers {status}: invalid_client"
    assert health_shown_by(outcome) is CallHealth.UNAUTHORIZED


async def test_a_refused_client_ends_an_operation_that_waits_for_no_credential(world: World) -> None:
    world.answers = [httpx.Response(403, json={"error": 5})]
    outcome = await attempt(a_dependency(f"{OAUTH}\ncircuit = {{ unauthorized_calls = 0 }}"))
    assert (outcome.category, outcome.counted) == (Category.UNAUTHORIZED, True)


async def test_a_refused_token_is_fetched_anew_and_sent_once_more(world: World) -> None:
    dependency = a_dependency()
    await attempt(dependency)
    world.refuses = lambda sent: sent == "Bearer token-00001"
    outcomes = await asyncio.gather(*(attempt(dependency) for _ in range(4)))
    assert [outcome.category for outcome in outcomes] == [None] * 4
    assert (len(world.asked), world.sent.count("Bearer token-00002")) == (2, 4)


async def test_a_new_token_that_is_refused_as_well_is_a_refused_credential(world: World) -> None:
    dependency, world.refuses = a_dependency(), lambda _: True
    for _ in range(3):
        outcome = await attempt(dependency)
        assert (outcome.status_code, outcome.refuses_credential) == (401, True)
    assert (len(world.asked), len(world.sent)) == (2, 4)
    world.seconds += 10
    await attempt(dependency)
    assert len(world.asked) == 3


async def test_the_same_token_is_not_sent_again(world: World) -> None:
    dependency, world.refuses = a_dependency(), lambda _: True
    world.answers = [httpx.Response(200, json=token_of(7)) for _ in range(2)]
    assert (await attempt(dependency)).status_code == 401
    assert (len(world.asked), len(world.sent)) == (2, 1)


async def test_a_refusal_without_a_new_token_leaves_no_doubt_about_the_request(world: World) -> None:
    dependency, world.refuses = a_dependency(f'{OAUTH}\nidempotency = {{ header = "" }}'), lambda _: True
    await attempt(dependency)
    world.seconds += 60
    world.answers = [httpx.Response(503)]
    outcome = await attempt(dependency)
    assert (outcome.category, outcome.counted) == (Category.TRANSIENT, False)


async def test_a_body_that_streams_is_sent_once(world: World) -> None:
    dependency, world.refuses = a_dependency(), lambda sent: sent == "Bearer token-00001"

    async def body() -> AsyncIterator[bytes]:
        yield b"{}"

    async with make_client(dependency, transport_of(dependency)) as client:
        extensions = {PROGRESS: SimpleNamespace()}
        answers = [await client.post("/a", content=body(), extensions=extensions) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [401, 200]


async def test_who_is_cut_off_does_not_end_the_fetch_of_others() -> None:
    go_on = asyncio.Event()

    async def fetch() -> Token:
        await go_on.wait()
        return bearer("token", 60, clock.monotonic_seconds())

    tokens = Tokens(fetch)
    first, second = (asyncio.create_task(tokens.current()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    go_on.set()
    assert (await second).value.reveal() == "Bearer token"


async def test_a_fetch_under_way_is_cut_off_when_the_connections_are_closed() -> None:
    tokens = Tokens(asyncio.Event().wait)  # type: ignore[arg-type] # it never returns
    tokens.close()
    waiting = asyncio.create_task(tokens.current())
    await asyncio.sleep(0)
    tokens.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@dataclass
class Identities:
    """Stand for azure-identity.

    Attributes:
        asked: Each identity, with the scope of the token.
        answer: Gives the token.
    """

    asked: list[tuple[Any, str]] = field(default_factory=list)
    answer: Callable[[], Any] = lambda: SimpleNamespace(
        token="token-00009",
        expires_on=NOON.timestamp() + 600,
    )

    @contextmanager
    def credential(self, identity: Any) -> Iterator[Any]:
        def get_token(scope: str) -> Any:
            self.asked.append((identity, scope))
            return self.answer()

        yield SimpleNamespace(get_token=get_token)


@pytest.fixture
def identities(monkeypatch: pytest.MonkeyPatch) -> Identities:
    identities = Identities()
    monkeypatch.setattr(services, "make_credential", identities.credential)
    monkeypatch.delenv("IDENTITY_ENDPOINT", raising=False)
    return identities


IDENTITY = 'auth = { identity = "api://payments/.default", client_id = "user-assigned" }'


async def test_in_azure_the_managed_identity_is_asked(
    world: World, identities: Identities, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDENTITY_ENDPOINT", "http://127.0.0.1:9")
    assert (await attempt(a_dependency(IDENTITY))).category is None
    assert world.sent == ["Bearer token-00009"]
    assert identities.asked == [(ManagedIdentity("user-assigned"), "api://payments/.default")]


async def test_elsewhere_who_is_signed_in_there(world: World, identities: Identities) -> None:
    dependency = a_dependency(IDENTITY)
    await attempt(dependency)
    world.seconds += 601
    await attempt(dependency)
    assert identities.asked == [(None, "api://payments/.default")] * 2


def _refuse() -> Any:
    raise ClientAuthenticationError("no identity is assigned\nTo mitigate this, ...")


def _wait() -> Any:
    raise TimeoutError


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (_refuse, "the app's identity has no token: no identity is assigned"),
        (_wait, "the app's identity has no token within 5 s"),
    ],
)
async def test_an_identity_without_a_token_is_an_outage_of_ours(
    world: World,
    identities: Identities,
    answer: Callable[[], Any],
    says: str,
) -> None:
    identities.answer = answer
    outcome = await attempt(a_dependency(IDENTITY))
    assert (outcome.is_own_failure, outcome.error, world.sent) == (True, says, [])


async def test_a_dependency_with_a_fixed_header_is_sent_to_as_before(world: World) -> None:
    inner = httpx.MockTransport(world.answer)
    assert signed(a_dependency('auth = { value = "Bearer sesame" }'), inner) is inner
    assert signed(a_dependency("alerts = { dead_letters = 5 }"), inner) is inner


def _failing(error: Exception) -> Callable[[httpx.Request], httpx.Response]:
    def fail(_: httpx.Request) -> httpx.Response:
        raise error

    return fail


async def test_a_certificate_that_a_server_refuses_is_a_refused_credential(tmp_path: Path) -> None:
    files = make_self_signed(tmp_path)
    dependency = a_dependency(f'tls = {{ certificate = "{files.certificate}", key = "{files.key}" }}')
    alert = httpx.ReadError("[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca")
    with sending_over(lambda called: signed(called, httpx.MockTransport(_failing(alert)))):
        outcome = await attempt(dependency)
        await close_clients()
    assert outcome.refuses_credential
    assert (outcome.error or "").startswith("payments refuses the app's certificate")
    lost = CertifiedTransport("payments", httpx.MockTransport(_failing(httpx.ReadError("reset"))))
    with pytest.raises(httpx.ReadError):
        await lost.handle_async_request(httpx.Request("GET", "https://a.example"))
    files.key.unlink()
    with pytest.raises(SignInError, match="cannot be read"):
        show_certificate(dependency, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    show_certificate(a_dependency(), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    assert issubclass(CredentialRefusedError, SignInError)
