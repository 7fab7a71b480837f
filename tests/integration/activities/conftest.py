from collections.abc import AsyncIterator, Iterator

import pytest

from activities.downstream import close_clients
from engine.config import Config, parse_config
from stores import task_hub
from stores.circuits import close_circuits
from stores.configuration import using
from tests.e2e.storage import Storage
from tests.e2e.target import Target
from tools.processes import running

DEPENDENCIES = """
[dependencies.safe]
base_url = "${TARGET}/"
headers = { X-Static = "as-written" }
auth = { header = "X-Api-Key", value = "${API_KEY}" }
timeouts = { attempt_seconds = 5 }

[dependencies.unsafe]
base_url = "${TARGET}"
idempotency = { header = "" }
timeouts = { attempt_seconds = 5 }

[dependencies.lenient]
base_url = "${TARGET}"
classify = { 404 = "transient" }

[dependencies.nowhere]
base_url = "http://127.0.0.1:9"
idempotency = { header = "" }

[dependencies.below]
base_url = "${TARGET}/echo/api"
"""


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    storage = Storage(tmp_path_factory.mktemp("storage"))
    with running(storage.server):
        yield storage


@pytest.fixture(autouse=True)
async def config(target: Target) -> AsyncIterator[Config]:
    """The dependencies that these tests call."""
    config = parse_config(DEPENDENCIES, {"TARGET": target.url, "API_KEY": "sesame-open-0815"})
    with using(config):
        yield config
        close_circuits()
        await task_hub.close_clients()
        await close_clients()
