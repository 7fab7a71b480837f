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

[dependencies.ruled]
base_url = "${TARGET}"
idempotency = { header = "" }
classify = { IntegrityError = "business_rule" }

[dependencies.lenient]
base_url = "${TARGET}"
classify = { 404 = "transient" }

[dependencies.nowhere]
base_url = "http://127.0.0.1:9"
idempotency = { header = "" }

[dependencies.free]
base_url = "${TARGET}"
circuit = { enabled = false }

[dependencies.asked]
base_url = "${TARGET}"
auth = { header = "X-Api-Key", value = "${API_KEY}" }
idempotency = { header = "" }
lookup = { path = "/counts/{key}", found = "/tries/0", failed = { "/tries/0/path" = ["/status/409"] } }

[dependencies.asked_about_more]
base_url = "${TARGET}"
auth = { header = "X-Api-Key", value = "${API_KEY}" }
lookup = { path = "/status/{input/status}", found = "/id" }

[dependencies.asked_by_query]
base_url = "${TARGET}"
lookup = { path = "/nowhere?key={key}", found = "/id" }

[dependencies.asked_in_turn]
base_url = "${TARGET}"
limits = { rate_per_second = 50 }
lookup = { path = "/counts/{key}", found = "/tries/0" }

[dependencies.garbling]
base_url = "${TARGET}"
lookup = { path = "/garbled/9?of={key}", found = "/id" }

[dependencies.below]
base_url = "${TARGET}/echo/api"
"""


@pytest.fixture(autouse=True)
async def config(target: Target) -> AsyncIterator[Config]:
    config = parse_config(DEPENDENCIES, {"TARGET": target.url, "API_KEY": "sesame-open-0815"})
    with using(config):
        yield config
        close_circuits()
        await task_hub.close_clients()
        await close_clients()
