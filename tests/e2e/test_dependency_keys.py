"""What keys of a dependency ask for, in a running app: signing in, a schema, failing fast."""

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, ClassVar

import httpx
import pytest
from azure.storage.queue import QueueClient

from scripts.processes import eventually
from tests.support.app import System, operation
from tests.support.azurite import Storage
from tests.support.certificates import SelfSigned, make_self_signed
from tests.support.target import Target

DEPENDENCIES = """
[defaults.circuit]
enabled = false

[defaults.retry]
strategy = "fixed"
initial_seconds = 0.2
jitter = "none"

[dependencies.by_oauth]
base_url = "${FLAKY_TARGET_URL}"
auth = { oauth = { token_url = "${FLAKY_TARGET_URL}/token", client_id = "app", client_secret = "${SECRET}" } }

[dependencies.by_identity]
base_url = "${FLAKY_TARGET_URL}"
auth = { identity = "api://payments/.default" }

[dependencies.by_certificate]
base_url = "${BANK_URL}"
tls = { certificate = "${BANK_CERTIFICATE}", key = "${BANK_KEY}" }

[dependencies.checked]
base_url = "${FLAKY_TARGET_URL}"
schema = "${SCHEMA}"

[dependencies.refusing]
base_url = "${FLAKY_TARGET_URL}"
when_open = "refuse"
circuit = { enabled = true }
"""

SCHEMA = {
    "type": "object",
    "properties": {"amount": {"type": "integer", "minimum": 1}},
    "required": ["amount"],
}


class Answering(BaseHTTPRequestHandler):
    """Gives the app's identity a token, and takes what the bank is sent."""

    token: ClassVar[bytes] = b'{"access_token": "of-the-app", "expires_on": "4102444800"}'

    def do_GET(self) -> None:
        self._answer(self.token)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._answer(b'{"booked": true}')

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@contextmanager
def serving(own: SelfSigned | None = None, client: SelfSigned | None = None) -> Iterator[str]:
    """Serve on loopback, with certificates those clients alone that have theirs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    if own is not None and client is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(own.certificate, own.key)
        context.load_verify_locations(client.certificate)
        context.verify_mode = ssl.CERT_REQUIRED
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"{'http' if own is None else 'https'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def own_storage(azurites: Any) -> Storage:
    storage: Storage = azurites("dependency-keys")
    return storage


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, target: Target, own_storage: Storage) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("dependency_keys")
    certificates = {}
    for name in ("bank", "client"):
        (folder / name).mkdir()
        certificates[name] = make_self_signed(folder / name)
    client = certificates["client"]
    (folder / "dependencies.toml").write_text(DEPENDENCIES)
    (folder / "charge.json").write_text(json.dumps(SCHEMA))
    with serving() as identity, serving(certificates["bank"], client) as bank:
        system = System(
            folder,
            target,
            AzureWebJobsStorage=own_storage.connection_string,
            DEPENDENCIES_FILE=str(folder / "dependencies.toml"),
            HANDLERS="tests.support.trusting",
            TRUSTED_CERTIFICATE=str(certificates["bank"].certificate),
            IDENTITY_ENDPOINT=f"{identity}/msi",
            IDENTITY_HEADER="the header",
            SECRET="sesame-open",
            BANK_URL=bank,
            BANK_CERTIFICATE=str(client.certificate),
            BANK_KEY=str(client.key),
            SCHEMA=str(folder / "charge.json"),
        )
        with system.running():
            yield system


@pytest.mark.parametrize(
    ("dependency", "token"), [("by_oauth", "Bearer "), ("by_identity", "Bearer of-the-app")]
)
def test_a_request_carries_the_token_of_the_app(app: System, key: str, dependency: str, token: str) -> None:
    done = app.until(app.accepted(key, "/fail/1", dependency=dependency), "succeeded")
    assert done["attempt_count"] == 2
    sent = [each["headers"]["authorization"] for each in app.target.received(key)["tries"]]
    assert len(sent) == 2
    assert all(each.startswith(token) for each in sent)
    assert sent[0] not in json.dumps(done)


def test_a_server_that_asks_for_a_certificate_gets_it(app: System, key: str) -> None:
    done = app.until(app.accepted(key, "/charges", dependency="by_certificate"), "succeeded")
    assert (done["result"]["json"], done["attempt_count"]) == ({"booked": True}, 1)


def test_a_request_that_does_not_fit_the_schema_is_refused_before_it_is_accepted(
    app: System, own_storage: Storage, key: str
) -> None:
    wrong = {"method": "POST", "path": "/echo", "json": {"amount": 0}}
    answer = app.post(key, "/echo", dependency="checked", request=wrong)
    assert answer.status_code == 400
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/request/json/amount"]
    app.until(app.accepted(key, "/echo", dependency="checked"), "succeeded")

    message = operation(f"{key}-message", "/echo", dependency="checked", request=wrong)
    with QueueClient.from_connection_string(own_storage.connection_string, "operations") as queue:
        queue.send_message(json.dumps(message))
    (letter,) = eventually(lambda: refused_messages(app), "the dead letter of the message")
    assert "/request/json/amount" in letter["detail"]
    assert f"{key}-message" not in app.target.totals()


def refused_messages(app: System) -> list[dict[str, Any]] | None:
    query = {"reason": "ValidationFailed"}
    return app.client.get("/api/dead-letters", params=query).json()["items"] or None


def test_who_does_not_wait_is_refused_while_the_circuit_is_open(app: System, key: str) -> None:
    held = {"reason": "a test", "for_seconds": 60.0}
    assert app.client.post("/api/circuits/refusing/open", json=held).status_code == 202
    names = iter(range(1_000))

    def refused() -> httpx.Response | None:
        answer = app.post(f"{key}-{next(names)}", "/echo", dependency="refusing")
        return answer if answer.status_code == 503 else None

    answer = eventually(refused, "the refusal")
    assert answer.json()["type"] == "/problems/circuit-open"
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    waiting = app.accepted(f"{key}-waits", "/echo", dependency="refusing", when_open="wait")
    app.until(waiting, "waiting_circuit")
    assert app.client.post("/api/circuits/refusing/close", json={"reason": "over"}).status_code == 202
    app.until(waiting, "succeeded")
