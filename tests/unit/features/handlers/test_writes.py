import pytest

from durable_retry.features.handlers.writes import run_of
from durable_retry.rules.retry.constraints import run_id_for


@pytest.mark.parametrize("run", [1, 2, 1_795_262_400_000])
def test_the_name_of_a_run_gives_its_number_back(run: int) -> None:
    assert run_of(run_id_for("op-1", run)) == run
