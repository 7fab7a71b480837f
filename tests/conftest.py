"""What holds for every test, and what many tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.storage import Storage
from tests.e2e.target import Target
from tools.processes import running

STRICT_TYPING = "AZURE_FUNCTIONS_DURABLE_STRICT_TYPING"
ONEBOX = frozenset({"hub", "onebox"})


@pytest.fixture(scope="module", autouse=True)
def plain_sdk(request: pytest.FixtureRequest) -> Iterator[None]:
    """onebox runs anyone's app: what this app switches on in the SDK stays out of onebox's own tests.

    The app sets it for its whole process when it is loaded, and a test process may hold tests of both.
    """
    with pytest.MonkeyPatch.context() as environment:
        if ONEBOX & set(Path(request.node.path).parts):
            environment.delenv(STRICT_TYPING, raising=False)
        yield


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """One flaky target for all tests; each test uses keys of its own."""
    target = Target(tmp_path_factory.mktemp("target"))
    with running(target.server):
        yield target


@pytest.fixture
def storage(azurite: Storage, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """The storage account of this process as the app; each folder has an Azurite of its own."""
    monkeypatch.setenv("AzureWebJobsStorage", azurite.connection_string)
    return azurite


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """An idempotency key that no other test uses."""
    name: str = request.node.name
    return "".join(letter if letter.isalnum() else "-" for letter in name)
