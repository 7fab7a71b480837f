"""A test kit for handlers and orchestrators: the app's own rules, without a host, a network or waiting.

    async def test_a_busy_warehouse_is_asked_again() -> None:
        warehouse = FakeDependency(503, {"parcel": "p-1"})
        run = await run_handler("ship-order", {"number": 7}, warehouse)
        assert (run.status, run.waits) == ("succeeded", [2.0])

The handler runs as in the app, `Call` and all, over `httpx.MockTransport`. What follows each attempt is what
`rules.retry` decides; a wait moves the clock. There is no circuit and no retry budget, and nothing commits:
writes and events are shown.
"""

from durable_retry.testing.fakes import (
    NOON,
    Crash,
    FakeClock,
    FakeDependency,
    FakeStep,
    Slow,
    use_placeholders,
)
from durable_retry.testing.handlers import HandlerRun, run_handler
from durable_retry.testing.orchestrators import OrchestratorRun, run_orchestrator

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
