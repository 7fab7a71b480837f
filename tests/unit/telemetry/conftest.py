from collections.abc import Iterator

import pytest

from tests.support.telemetry import Recorded, telemetry_stage


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    with telemetry_stage() as recorded:
        yield recorded
