import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from azure.core.exceptions import ResourceExistsError

from scripts.processes import running
from tests.support.app import HOSTED_URL, HostedSystem, System
from tests.support.azurite import Account, Storage, new_account
from tests.support.onebox.process import AS_SHIPPED
from tests.support.target import Target


@pytest.fixture(scope="session")
def storage() -> Account:
    account = Account(os.environ["E2E_STORAGE"]) if HOSTED_URL else new_account()
    for name in ("operations", "operations-poison"):
        # A host makes none of them for its triggers.
        with (
            account.queue(name) as queue,
            suppress(ResourceExistsError),
        ):
            queue.create_queue()
    return account


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory, target: Target, storage: Account) -> Iterator[System]:
    """One running app for all tests that leave it running."""
    if HOSTED_URL:
        hosted = HostedSystem(target)
        yield hosted
        hosted.client.close()
        return
    folder = tmp_path_factory.mktemp("system")
    system = System(
        folder,
        target,
        AzureWebJobsStorage=storage.connection_string,
        FUNCTIONS_WORKER_PROCESS_COUNT=AS_SHIPPED,
    )
    with system.running():
        yield system


@pytest.fixture(scope="module")
def own_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A target whose outages are nobody else's."""
    target = Target(tmp_path_factory.mktemp("target"))
    with running(target.server):
        yield target


@pytest.fixture(scope="session")
def tailored_storage() -> Storage:
    """The storage account of `tailored`: with that of `system` it would take messages meant for the other."""
    return new_account()


@pytest.fixture(scope="session")
def tailored(
    tmp_path_factory: pytest.TempPathFactory, target: Target, tailored_storage: Storage
) -> Iterator[System]:
    """An app with settings of its own: handlers, a short memory (see tailored.toml)."""
    system = System(
        tmp_path_factory.mktemp("tailored"),
        target,
        AzureWebJobsStorage=tailored_storage.connection_string,
        DEPENDENCIES_FILE=str(Path(__file__).with_name("tailored.toml")),
        HANDLERS="examples.handlers,tests.support.handlers",
    )
    with system.running():
        yield system


@pytest.fixture(scope="module")
def mortal_system(tmp_path_factory: pytest.TempPathFactory, target: Target) -> Iterator[System]:
    """An app of the file's own, to be killed and started again.

    Its storage is not killed with it, as Azure's would not be.
    """
    folder = tmp_path_factory.mktemp("own")
    system = System(folder, target, FUNCTIONS_WORKER_PROCESS_COUNT=AS_SHIPPED)
    with system.running():
        yield system


@pytest.fixture
def own_system(mortal_system: System) -> System:
    """The same, up again should another test have left it dead."""
    if mortal_system.server.process is None:
        mortal_system.server.start()
    return mortal_system
