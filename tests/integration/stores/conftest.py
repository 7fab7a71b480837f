from collections.abc import AsyncIterator

import pytest

from durable_retry.hub.task_hub import close_clients
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.settings.configuration import using
from tests.support.hub import TaskHubStage, task_hub_stage


@pytest.fixture(params=["Azurite", "in memory"])
def any_tables(request: pytest.FixtureRequest) -> None:
    """Tables, once on Azurite and once in the fake that the simulation uses."""
    request.getfixturevalue("storage")
    if request.param == "in memory":
        request.getfixturevalue("tables_in_memory")


DEPENDENCIES = """
[dependencies.payments]
base_url = "https://payments.example.com"
"""


@pytest.fixture
async def task_hub() -> AsyncIterator[TaskHubStage]:
    with task_hub_stage(parts=True) as stage, using(parse_config(DEPENDENCIES, {})):
        yield stage
        await close_clients()
