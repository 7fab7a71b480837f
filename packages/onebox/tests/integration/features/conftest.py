from collections.abc import Iterator

import pytest

from tests.support.onebox.process import AS_SHIPPED, FEATURES, OneboxProcess


@pytest.fixture(scope="package")
def features(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneboxProcess]:
    """The app that uses everything the SDK offers."""
    folder = tmp_path_factory.mktemp("features")
    # In a process of their own functions may block their event loop, as that of an export does.
    onebox = OneboxProcess(
        folder, FEATURES, EXPORT_FOLDER=str(folder), FUNCTIONS_WORKER_PROCESS_COUNT=AS_SHIPPED
    )
    onebox.server.start()
    yield onebox
    assert onebox.close() == 0
