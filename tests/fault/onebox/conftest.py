from collections.abc import Iterator

import pytest

from tests.e2e.storage import Storage
from tests.fault.onebox.lives import Lives


@pytest.fixture
def lives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lives]:
    """The ledger app before its first life, with a storage account that outlives it."""
    folder = tmp_path_factory.mktemp("lives")
    storage = Storage(folder)
    storage.server.start()
    lives = Lives(folder, storage)
    yield lives
    lives.end()
    storage.server.stop()
