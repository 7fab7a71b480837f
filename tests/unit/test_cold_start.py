import json
import os
import re
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

import pytest

import activities
from durable_retry.plugins import plugins
from durable_retry.runtime.deferred import imported
from tests.support.commands import ran

ROOT: Final = Path(__file__).parents[2]

HEAVY: Final = frozenset(
    {
        # Libraries that the first attempt, the first row, the first message or the first request brings.
        *("aiohttp", "requests", "azure.data.tables", "azure.storage.queue", "azure.identity"),
        *("httpx", "httptools", "opentelemetry.sdk", "croniter"),
        # Our own: routes and activities, each with all that it needs.
        *("durable_retry.http.routes", "durable_retry.features.openapi.routes"),
        *(
            *(f"durable_retry.attempt.{name}" for name in ("admission", "attempt", "http_client")),
            "durable_retry.features.handlers.attempt",
            "durable_retry.features.outbox.sending",
            *(f"durable_retry.features.in_process.{name}" for name in ("call", "operations")),
        ),
        *("durable_retry.upkeep.failures", "durable_retry.upkeep.rounds"),
        *(f"durable_retry.{room}.routes" for room in ("intake", "operations", "dead_letters", "upkeep")),
        *("activities.operation", "activities.outbox"),
        *(
            "durable_retry_console.finding",
            "durable_retry_console.overview",
            "durable_retry_console.dashboard",
        ),
        *("durable_retry_console.bulk.actions", "durable_retry_console.alerts.watch"),
    }
)

# `package.module:name` as a whole text.
_REFERENCE: Final = re.compile(r'"((?:\w+\.)+\w+:\w+)"')


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    """The modules that a start leaves loaded, in an interpreter of its own."""
    run = ran(
        [sys.executable, "-c", "import json, sys, function_app; print(json.dumps(sorted(sys.modules)))"],
        env={"PATH": os.environ["PATH"], "FLAKY_TARGET_URL": "http://127.0.0.1:9"},
        check=True,
    )
    return set(json.loads(run.stdout))


def test_a_start_imports_nothing_that_only_some_requests_need(loaded: set[str]) -> None:
    assert HEAVY & loaded == set()


def test_what_must_not_be_imported_exists() -> None:
    for name in HEAVY:
        assert imported(f"{name}:__name__") == name


def deferred_references() -> Iterator[str]:
    for folder in ("durable_retry", "activities", "orchestrators", "entities", "packages/console"):
        for file in (ROOT / folder).rglob("*.py"):
            yield from _REFERENCE.findall(file.read_text(encoding="utf-8"))
    for each in chain(activities.ACTIVITIES, *(plugin.activities for plugin in plugins())):
        yield from (f"activities.{each.module}:{name}" for name in each.names)


@pytest.mark.parametrize("reference", sorted(set(deferred_references())))
def test_what_is_imported_later_is_there(reference: str) -> None:
    assert imported(reference) is not None
