from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.processes import running
from tests.support.azurite import Storage
from tests.support.onebox.host_lives import Lives


@pytest.fixture(scope="package")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    """A storage account that outlives the apps."""
    storage = Storage(tmp_path_factory.mktemp("storage"))
    with running(storage.server):
        yield storage


@pytest.fixture
def lives(tmp_path: Path, storage: Storage) -> Iterator[Lives]:
    """The ledger app before its first life; its queues are empty."""
    lives = Lives(tmp_path, storage)
    yield lives
    lives.end()
