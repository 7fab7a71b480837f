import json
from collections.abc import Iterator
from typing import Any

import pytest

from scripts.processes import eventually
from tests.support.app import System, operation
from tests.support.azurite import Storage, new_account
from tests.support.certificates import for_known_clients, make_self_signed
from tests.support.stub_server import StubServer
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
"""

SCHEMA = {
    "type": "object",
    "properties": {"amount": {"type": "integer", "minimum": 1}},
    "required": ["amount"],
}


TOKEN = b'{"access_token": "of-the-app", "expires_on": "4102444800"}'
"""What the app's identity is answered."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Serve what the dependencies ask, and return the app settings that lead there."""
    bank, client = (make_self_signed(tmp_path_factory.mktemp(name)) for name in ("bank", "client"))
    identity = StubServer(lambda *_: TOKEN)
    booking = StubServer(lambda *_: b'{"booked": true}', for_known_clients(bank, client))
    yield {
        "TRUSTED_CERTIFICATE": str(bank.certificate),
        "IDENTITY_ENDPOINT": f"{identity.url}/msi",
        "BANK_URL": booking.url,
        "BANK_CERTIFICATE": str(client.certificate),
        "BANK_KEY": str(client.key),
    }
    for server in (identity, booking):
        server.stop()


@pytest.fixture(scope="module")
def own_storage() -> Storage:
    return new_account()


@pytest.fixture(scope="module")
def app(
    tmp_path_factory: pytest.TempPathFactory, target: Target, own_storage: Storage, served: dict[str, Any]
) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("dependency_keys")
    (folder / "dependencies.toml").write_text(DEPENDENCIES)
    (folder / "charge.json").write_text(json.dumps(SCHEMA))
    system = System(
        folder,
        target,
        AzureWebJobsStorage=own_storage.connection_string,
        DEPENDENCIES_FILE=str(folder / "dependencies.toml"),
        HANDLERS="tests.support.trusting",
        IDENTITY_HEADER="the header",
        SECRET="sesame-open",
        SCHEMA=str(folder / "charge.json"),
        **served,
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
    with own_storage.queue("operations") as queue:
        queue.send_message(json.dumps(message))
    (letter,) = eventually(lambda: refused_messages(app), "the dead letter of the message")
    assert "/request/json/amount" in letter["detail"]
    assert f"{key}-message" not in app.target.totals()


def refused_messages(app: System) -> list[dict[str, Any]] | None:
    query = {"reason": "ValidationFailed"}
    return app.client.get("/api/dead-letters", params=query).json()["items"] or None
