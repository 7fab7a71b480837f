from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.hub.backends import BACKENDS, Backend, hub_backend
from tests.integration.hub.sample_app import make_app


@pytest.fixture(params=sorted(BACKENDS))
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    """Each backend in turn, with the sample app."""
    async with BACKENDS[request.param](tmp_path, make_app()) as made:
        yield made


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Backend]:
    """The hub alone, for what only it does."""
    async with hub_backend(tmp_path, make_app()) as made:
        yield made
