from collections.abc import Iterator

import pytest

from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.settings.configuration import using
from tests.support.azurite import Storage, use_account

DEPENDENCIES = """
[defaults.retry]
strategy = "fixed"
initial_seconds = 1.0
jitter = "none"
max_attempts = 2

[defaults.circuit]
enabled = false

# Nobody listens on port 1.
[dependencies.absent]
base_url = "http://127.0.0.1:1"
"""


@pytest.fixture
def storage(azurite: Storage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    """The app's storage account, and dependencies of which none answers."""
    use_account(monkeypatch, azurite.connection_string)
    with using(parse_config(DEPENDENCIES, {})):
        yield azurite
