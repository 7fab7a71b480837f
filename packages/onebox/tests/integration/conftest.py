from collections.abc import Iterator

import pytest

from tests.support.onebox.process import AS_SHIPPED, OWN_AZURITE, OneboxProcess


@pytest.fixture(scope="session")
def onebox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneboxProcess]:
    """The sample app as it is served by default, for all tests that leave it running."""
    onebox = OneboxProcess(
        tmp_path_factory.mktemp("onebox"),
        AzureWebJobsStorage=OWN_AZURITE,
        FUNCTIONS_WORKER_PROCESS_COUNT=AS_SHIPPED,
    )
    onebox.server.start()
    yield onebox
    assert onebox.close() == 0


@pytest.fixture
def own_onebox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneboxProcess]:
    """The sample app, for one test that may kill it."""
    onebox = OneboxProcess(tmp_path_factory.mktemp("own"), AzureWebJobsStorage=OWN_AZURITE)
    onebox.server.start()
    yield onebox
    onebox.close()
