from collections.abc import AsyncIterator

import pytest

from durable_retry.engine.config import parse_config
from durable_retry.settings.configuration import using
from durable_retry.stores.task_hub import close_clients
from tests.support.hub import TaskHubStage, task_hub_stage

DEPENDENCIES = """
[dependencies.payments]
base_url = "https://payments.example.com"
retry = { strategy = "fixed", initial_seconds = 60.0, jitter = "none" }
"""


@pytest.fixture
async def hub() -> AsyncIterator[TaskHubStage]:
    """A task hub with the app's orchestration; activities answer as a test sets them."""
    with task_hub_stage() as stage, using(parse_config(DEPENDENCIES, {})):
        yield stage
        await close_clients()
