from collections.abc import Iterator

import pytest

from engine.config import parse_config
from stores.configuration import using
from tests.e2e.storage import Storage
from tools.processes import running

DEPENDENCIES = """
[defaults.retry]
strategy = "fixed"
initial_seconds = 1.0
jitter = "none"
max_attempts = 2

[defaults.circuit]
enabled = false

# Nobody listens on port 1.
[dependencies.absent]
base_url = "http://127.0.0.1:1"
"""


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    storage = Storage(tmp_path_factory.mktemp("storage"))
    with running(storage.server):
        yield storage


@pytest.fixture
def storage(azurite: Storage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    """The app's storage account, and dependencies of which none answers."""
    monkeypatch.setenv("AzureWebJobsStorage", azurite.connection_string)
    with using(parse_config(DEPENDENCIES, {})):
        yield azurite
