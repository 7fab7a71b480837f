"""The stores without a key: an Azurite that asks for tokens, and the endpoint where an app gets them.

stores ──> azure-identity ──> identity endpoint (ours, as App Service has it)
   └──> https, with the token ──> Azurite, which checks its issuer, audience and time
"""

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.storage.queue import QueueServiceClient

from durable_retry.settings import storage_account
from durable_retry.storage import clients as storage_clients
from durable_retry.storage import queues, tables
from scripts.processes import running
from tests.support.azurite import Emulator, Storage
from tests.support.certificates import make_self_signed

pytestmark = pytest.mark.long


CLIENT_ID = "0000-client"
TABLE = "Notes"


@pytest.fixture(scope="module")
def secure_storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    folder = tmp_path_factory.mktemp("secure-storage")
    files = make_self_signed(folder)
    emulator = Emulator(folder, certificate=files.certificate, key=files.key)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("REQUESTS_CA_BUNDLE", str(files.certificate))
        environment.setenv("SSL_CERT_FILE", str(files.certificate))
        with running(emulator.server):
            yield emulator.account()


@pytest.fixture
def identity_endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator["IdentityEndpoint"]:
    endpoint = IdentityEndpoint()
    thread = threading.Thread(target=endpoint.server.serve_forever)
    thread.start()
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"http://127.0.0.1:{endpoint.server.server_port}/token")
    monkeypatch.setenv("IDENTITY_HEADER", "the header")
    yield endpoint
    endpoint.server.shutdown()
    thread.join()
    endpoint.server.server_close()


@pytest.fixture
def account(secure_storage: Storage, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The app's settings name the account and its identity, and no key."""
    monkeypatch.delenv("AzureWebJobsStorage", raising=False)
    settings = {f"{service}ServiceUri": url for service, url in secure_storage.urls.items()}
    for name, value in (settings | {"credential": "managedidentity", "clientId": CLIENT_ID}).items():
        monkeypatch.setenv(f"AzureWebJobsStorage__{name}", value)
    caches = (storage_account.credential_of, storage_clients.table_service, queues._queue_service)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


@pytest.mark.usefixtures("account")
async def test_tables_and_queues_work_with_a_token(
    secure_storage: Storage, identity_endpoint: "IdentityEndpoint"
) -> None:
    row = {"PartitionKey": "p", "RowKey": "r", "text": "kept"}
    assert await tables.insert_if_absent(TABLE, row)
    assert not await tables.insert_if_absent(TABLE, row)
    assert (await tables.read(TABLE, "p", "r") or {})["text"] == "kept"
    await queues.send_message("notes", "sent")
    with QueueServiceClient.from_connection_string(secure_storage.connection_string) as service:
        assert [message.content for message in service.get_queue_client("notes").peek_messages()] == ["sent"]
    assert identity_endpoint.asked == {("https://storage.azure.com", CLIENT_ID, "the header")}


@pytest.mark.usefixtures("account")
async def test_no_token_is_trouble_that_may_pass(identity_endpoint: "IdentityEndpoint") -> None:
    identity_endpoint.refuses = True
    with pytest.raises(ClientAuthenticationError):
        await tables.read(TABLE, "p", "r")
    with pytest.raises(ClientAuthenticationError):
        await queues.send_message("notes", "not refused for what it is")
    with pytest.raises(ClientAuthenticationError):
        await tables.transact(TABLE, [("create", {"PartitionKey": "p", "RowKey": "s"})])


class IdentityEndpoint:
    """Gives tokens as App Service does.

    Attributes:
        asked: For which resource, for which client id, and with which header, each time.
        refuses: Whether it answers that there is no such identity.
    """

    def __init__(self) -> None:
        self.asked: set[tuple[str, ...]] = set()
        self.refuses = False
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
                asked = (query["resource"], query.get("client_id", ""), self.headers["X-IDENTITY-HEADER"])
                endpoint.asked.add(asked)
                answer = {"error": "invalid_request"} if endpoint.refuses else a_token(query["resource"])
                content = json.dumps(answer).encode()
                self.send_response(400 if endpoint.refuses else 200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)


def a_token(resource: str) -> dict[str, str]:
    now = int(time.time())
    times = {"iat": now - 60, "nbf": now - 60, "exp": now + 3600}
    claims = {"aud": resource, "iss": "https://sts.windows.net/tenant/", "oid": "the app", **times}
    parts = ({"alg": "RS256", "typ": "JWT"}, claims)
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    token = ".".join([*encoded, "c2lnbmF0dXJl"])
    return {
        "access_token": token,
        "expires_on": str(now + 3600),
        "resource": resource,
        "token_type": "Bearer",
    }
