"""A test kit for handlers and orchestrators: the app's own rules, without a host, a network or waiting.

    async def test_a_busy_warehouse_is_asked_again() -> None:
        warehouse = FakeDependency(503, {"parcel": "p-1"})
        run = await run_handler("ship-order", {"number": 7}, warehouse)
        assert (run.status, run.waits) == ("succeeded", [2.0])

The handler runs as in the app, `Call` and all, over `httpx.MockTransport`. What follows each attempt is what
`rules.retry` decides; a wait moves the clock. There is no circuit and no retry budget, and nothing commits:
writes and events are shown.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from durable_retry.features.handlers.testing.fakes import (
    NOON,
    Crash,
    FakeClock,
    FakeDependency,
    FakeStep,
    Slow,
)
from durable_retry.features.handlers.testing.handlers import HandlerRun, run_handler
from durable_retry.features.handlers.testing.placeholders import use_placeholders

if TYPE_CHECKING:
    from durable_retry.features.in_process.testing import OrchestratorRun, run_orchestrator

__all__ = [
    "NOON",
    "Crash",
    "FakeClock",
    "FakeDependency",
    "FakeStep",
    "HandlerRun",
    "OrchestratorRun",
    "Slow",
    "run_handler",
    "run_orchestrator",
    "use_placeholders",
]


def __getattr__(name: str) -> Any:
    # What plays `durable_retry.call` is of that feature.
    if name not in {"OrchestratorRun", "run_orchestrator"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("durable_retry.features.in_process.testing"), name)
