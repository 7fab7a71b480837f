from collections.abc import AsyncIterator

import pytest

from durable_retry.attempt.http_client import close_clients
from durable_retry.circuit.cache import close_circuits
from durable_retry.hub import task_hub
from durable_retry.rules.config.dependencies_file import Config, parse_config
from durable_retry.settings.configuration import using
from tests.support.target import Target

DEPENDENCIES = """
[dependencies.safe]
base_url = "${TARGET}/"
headers = { X-Static = "as-written" }
auth = { header = "X-Api-Key", value = "${API_KEY}" }
timeouts = { attempt_seconds = 5 }

[dependencies.unsafe]
base_url = "${TARGET}"
idempotency = { header = "" }
timeouts = { attempt_seconds = 5 }

[dependencies.lenient]
base_url = "${TARGET}"
classify = { 404 = "transient" }

[dependencies.nowhere]
base_url = "http://127.0.0.1:9"
idempotency = { header = "" }

[dependencies.free]
base_url = "${TARGET}"
circuit = { enabled = false }

[dependencies.below]
base_url = "${TARGET}/echo/api"
"""


@pytest.fixture(autouse=True)
async def config(target: Target) -> AsyncIterator[Config]:
    """The dependencies that these tests call."""
    config = parse_config(DEPENDENCIES, {"TARGET": target.url, "API_KEY": "sesame-open-0815"})
    with using(config):
        yield config
        close_circuits()
        await task_hub.close_clients()
        await close_clients()
