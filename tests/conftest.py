"""What holds for every test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

STRICT_TYPING = "AZURE_FUNCTIONS_DURABLE_STRICT_TYPING"
ONEBOX = frozenset({"hub", "onebox"})


@pytest.fixture(scope="module", autouse=True)
def plain_sdk(request: pytest.FixtureRequest) -> Iterator[None]:
    """onebox runs anyone's app: what this app switches on in the SDK stays out of onebox's own tests.

    The app sets it for its whole process when it is loaded, and a test process may hold tests of both.
    """
    with pytest.MonkeyPatch.context() as environment:
        if ONEBOX & set(Path(request.node.path).parts):
            environment.delenv(STRICT_TYPING, raising=False)
        yield
