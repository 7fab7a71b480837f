from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from durabletask.testing.in_memory_backend import InMemoryOrchestrationBackend

from onebox.hub import HubSettings
from tests.support.onebox.backends import Backend, client_of, hub_backend, in_memory_server, worker_backend
from tests.support.onebox.sample_app import make_app


@pytest.fixture(scope="session")
def in_memory() -> Iterator[tuple[InMemoryOrchestrationBackend, str]]:
    with in_memory_server(make_app()) as running:
        yield running


@pytest.fixture(params=["hub", "hub_locally", "hub_in_worker", "in_memory"])
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    """Each backend in turn, empty, with the sample app."""
    if request.param == "hub_in_worker":
        async with worker_backend(tmp_path, make_app()) as made:
            yield made
        return
    if request.param != "in_memory":
        # One of them packs at once what has ended, so that each case meets it so, too.
        packs_at_once = HubSettings(archive_after_seconds=0) if request.param == "hub_locally" else None
        async with hub_backend(
            tmp_path, make_app(), locally=request.param == "hub_locally", settings=packs_at_once
        ) as made:
            yield made
        return
    server, address = request.getfixturevalue("in_memory")
    server.reset()
    async with client_of(address) as client:
        yield Backend(client, address)


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Backend]:
    """The hub alone, for what only it does."""
    async with hub_backend(tmp_path, make_app()) as made:
        yield made
