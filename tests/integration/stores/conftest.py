from collections.abc import AsyncIterator, Iterator

import pytest

from stores import tables
from stores.task_hub import close_clients
from tests.e2e.storage import Storage
from tests.table_fake import TablesInMemory
from tests.task_hub_stage import TaskHubStage, task_hub_stage
from tools.processes import running


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    storage = Storage(tmp_path_factory.mktemp("storage"))
    with running(storage.server):
        yield storage


@pytest.fixture(params=["Azurite", "in memory"])
def any_tables(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables, once on Azurite and once in the fake that the simulation uses."""
    request.getfixturevalue("storage")
    if request.param == "in memory":
        fake = TablesInMemory()
        monkeypatch.setattr(tables, "_service", lambda _account: fake)


@pytest.fixture
async def task_hub() -> AsyncIterator[TaskHubStage]:
    with task_hub_stage() as stage:
        yield stage
        await close_clients()
