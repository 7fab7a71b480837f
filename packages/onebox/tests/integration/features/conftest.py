from collections.abc import Iterator

import pytest

from tests.support.onebox.process import FEATURES, OneboxProcess


@pytest.fixture(scope="package")
def features(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneboxProcess]:
    """The app that uses everything the SDK offers."""
    folder = tmp_path_factory.mktemp("features")
    onebox = OneboxProcess(folder, FEATURES, EXPORT_FOLDER=str(folder))
    onebox.server.start()
    yield onebox
    assert onebox.close() == 0
