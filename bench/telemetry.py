"""What telemetry costs an app and each operation: off, with a collector, or with Application Insights.

`python -m bench.telemetry` measures one of them in a process of its own, as its settings say, and prints what
it found as JSON.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from bench.child import run_child
from bench.memory import MEBI
from bench.numbers import Row, Table
from durable_retry.engine.base.names import OperationState
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.operations.status import OperationStatus
from durable_retry.engine.retry.history import AttemptOutcome, History
from durable_retry.engine.retry.policy import RetryPolicy, Timeouts
from durable_retry.settings.telemetry import receivers_in
from durable_retry.telemetry import events, spans, start_telemetry
from scripts.processes import free_port

OPERATIONS = 2_000
REPEATS = 5

START = """
import json, os, time
from bench.memory import resident_bytes
began = time.process_time()
import function_app
print(json.dumps([time.process_time() - began, resident_bytes()]), flush=True)
os._exit(0)
"""
"""Loads the app, and says how many seconds that took and how many bytes it holds."""

NOTES = (
    "each in a process of its own; start and memory are those of importing `function_app`, no host around it",
    f"recording: processor time for spans and metrics of one attempt, best of {REPEATS} runs of {OPERATIONS}",
    "apart: sending, which threads do later in batches, and log lines apart",
)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one configuration of telemetry costs."""

    start_seconds: float
    memory_mib: float
    operation_us: float


async def measure(folder: Path, _operations: int) -> list[Table]:
    """Measures each way in a process of its own; nobody listens, so that no receiver takes part."""
    away = f"http://127.0.0.1:{free_port()}"
    insights = f"InstrumentationKey=00000000-0000-0000-0000-000000000000;IngestionEndpoint={away}/"
    ways = {
        "off": {},
        "OTLP collector": {"OTEL_EXPORTER_OTLP_ENDPOINT": away},
        "Application Insights": {"APPLICATIONINSIGHTS_CONNECTION_STRING": insights},
    }
    own = {"TMPDIR": str(folder)}  # There Application Insights' exporter keeps what nobody took.
    costs = [await _in_own_process(settings | own) for settings in ways.values()]
    return [_table(tuple(ways), costs)]


async def _in_own_process(settings: dict[str, str]) -> Cost:
    environ = {"FLAKY_TARGET_URL": "http://127.0.0.1:9", "APPLICATIONINSIGHTS_STATSBEAT_DISABLED_ALL": "true"}
    start_seconds, memory_bytes = await _printed(environ | settings, "-c", START)
    operation_us = await _printed(environ | settings, "-m", "bench.telemetry")
    return Cost(start_seconds, memory_bytes / MEBI, operation_us)


async def _printed(environ: dict[str, str], *arguments: str) -> Any:
    return await run_child(*arguments, log=Path(os.devnull), env=environ)


def _table(columns: tuple[str, ...], costs: list[Cost]) -> Table:
    rows = (
        Row("start of the app", "s", tuple(f"{cost.start_seconds:.2f}" for cost in costs)),
        Row("memory after it", "MiB", tuple(f"{cost.memory_mib:.0f}" for cost in costs)),
        Row("recording of one operation", "us", tuple(f"{cost.operation_us:.0f}" for cost in costs)),
    )
    return Table("What telemetry costs", columns, rows, NOTES)


def _recording() -> Callable[[], None]:
    """Returns a function that records all telemetry of one operation but its log lines."""
    now = datetime.now(UTC)
    operation = OperationInput(
        operation_id="op-1",
        key="key-1",
        source="http",
        dependency="flaky",
        fingerprint="",
        policy=RetryPolicy(),
        timeouts=Timeouts(),
        created_at=now,
    )
    outcome = AttemptOutcome(number=1, started_at=now, duration_ms=1.0)
    status = OperationStatus(
        operation=operation,
        state=OperationState.SUCCEEDED,
        history=History(),
        updated_at=now + timedelta(seconds=1),
    )
    document = status.to_json()

    def record() -> None:
        with spans.submission(operation) as (_, traced):
            events.submitted(traced, "started")
        with spans.attempt(traced, 1) as span:
            with spans.call("POST", "127.0.0.1", 9, httpx.Headers()) as request:
                spans.call_answered(request, 200)
            spans.attempt_ended(span, outcome, events.SUCCESS)
            events.attempted(traced, outcome)
        events.operation_ended(document, traced.trace)

    return record


def _best_us(record: Callable[[], None]) -> float:
    """Returns microseconds of processor time per operation."""
    best_seconds = float("inf")
    for _ in range(REPEATS):
        began = time.process_time()
        for _ in range(OPERATIONS):
            record()
        best_seconds = min(best_seconds, time.process_time() - began)
    return best_seconds / OPERATIONS * 1_000_000


def main() -> None:
    """Measures one operation in this process's configuration."""
    start_telemetry(receivers_in(os.environ))
    sys.stdout.write(json.dumps(_best_us(_recording())))
    sys.stdout.flush()
    os._exit(0)  # Skips the exporters' last flush.


if __name__ == "__main__":
    main()
