from collections.abc import Iterator

import pytest

from tests.support.telemetry import Told, telemetry_stage


@pytest.fixture
def told() -> Iterator[Told]:
    with telemetry_stage() as told:
        yield told
