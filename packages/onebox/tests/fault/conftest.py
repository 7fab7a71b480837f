from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.azurite import new_account
from tests.support.onebox.host_lives import Lives


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[Lives]:
    """The ledger app before its first life; its queues are empty."""
    lives = Lives(tmp_path, new_account())
    yield lives
    lives.end()
