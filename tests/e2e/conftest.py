from collections.abc import Iterator

import pytest

from tests.e2e.target import Target


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """One flaky target for all tests; each test uses keys of its own."""
    target = Target(tmp_path_factory.mktemp("target"))
    target.server.start()
    yield target
    target.server.stop()
