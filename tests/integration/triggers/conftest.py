from collections.abc import AsyncIterator, Iterator

import pytest

from engine.config import parse_config
from stores.configuration import using
from stores.task_hub import close_clients
from tests.e2e.storage import Storage
from tests.task_hub_stage import TaskHubStage, task_hub_stage
from tools.processes import running

DEPENDENCIES = """
[dependencies.payments]
base_url = "https://payments.example.com"
retry = { strategy = "fixed", initial_seconds = 60.0, jitter = "none" }
"""


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    storage = Storage(tmp_path_factory.mktemp("storage"))
    with running(storage.server):
        yield storage


@pytest.fixture
async def hub() -> AsyncIterator[TaskHubStage]:
    """A task hub with the app's orchestration; activities answer as told."""
    with task_hub_stage() as stage, using(parse_config(DEPENDENCIES, {})):
        yield stage
        await close_clients()
