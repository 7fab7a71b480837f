"""Instances that wait on onebox's hub: `python -m bench.hub_waiting FOLDER` prints their cost as JSON."""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path

from durabletask.client import AsyncTaskHubGrpcClient

from bench.hub_rates import FINISH_SECONDS, run
from bench.hub_sides import onebox_hub
from bench.numbers import percentile
from onebox.hub import Hub
from onebox.hub.model import Start, Status

WAITING = 10_000
PENDING = 50_000
WATCH_SECONDS = 5.0
SPREAD_SECONDS = 20.0
AT_ONCE = 500
_STATUS = Path("/proc/self/status")


def resident_mebibytes() -> float:
    """Returns the memory that this process holds; 0 where the system does not tell (only Linux does)."""
    if not _STATUS.exists():
        return 0.0
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


async def idle_percent() -> float:
    """Watches the processor time of this process while nothing is due; percent of one core."""
    before, began = time.process_time(), time.perf_counter()
    await asyncio.sleep(WATCH_SECONDS)
    return 100 * (time.process_time() - before) / (time.perf_counter() - began)


async def turn_cpu(client: AsyncTaskHubGrpcClient) -> float:
    """Returns the processor seconds that a turn costs now."""
    before = time.process_time()
    await run(client, "generations", 50, 19)
    return (time.process_time() - before) / (50 * 20)


async def start_all(count: int, start: Callable[[int], Coroutine[None, None, str]]) -> None:
    """Starts so many instances, some hundreds at a time."""
    for first in range(0, count, AT_ONCE):
        await asyncio.gather(*(start(number) for number in range(first, min(first + AT_ONCE, count))))


async def fall_asleep(hub: Hub, name: str, count: int, due: datetime) -> float:
    """Starts instances that wait on a timer each, spread over some time from `due` on.

    Returns:
        The seconds until all of them waited.
    """
    began = time.perf_counter()

    async def start(number: int) -> str:
        until = due + timedelta(seconds=SPREAD_SECONDS * number / count)
        return await hub.tasks.start(Start(f"{name}-{number}", "sleeps", input=json.dumps(until.isoformat())))

    await start_all(count, start)
    async with asyncio.timeout(FINISH_SECONDS):
        await hub.settled()
    return time.perf_counter() - began


async def schedule(hub: Hub) -> None:
    """Starts instances that are to begin tomorrow."""
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    start_us = int(tomorrow.timestamp() * 1_000_000)

    async def start(number: int) -> str:
        return await hub.tasks.start(Start(f"pending-{number}", "sleeps", start_at_us=start_us))

    await start_all(PENDING, start)


async def measure(folder: Path) -> dict[str, float]:
    """Returns the costs while they wait, and how late their timers fire."""
    async with onebox_hub(folder) as (hub, client):
        await run(client, "generations", 5, 5)
        found = await costs(client, "empty")
        await schedule(hub)
        found |= await costs(client, "pending")
        tried = await fall_asleep(hub, "tried", AT_ONCE, datetime.now(UTC) + timedelta(days=1))
        # Nobody may be due while others still fall asleep, or are watched.
        ready_seconds = 3 * tried * WAITING / AT_ONCE + 3 * WATCH_SECONDS
        due = datetime.now(UTC) + timedelta(seconds=ready_seconds)
        found["fall_asleep"] = await fall_asleep(hub, "sleeper", WAITING, due)
        found |= await costs(client, "waiting")
        found["in_time"] = float(datetime.now(UTC) < due)
        late = await lateness(hub)
    return found | {"late_p50": percentile(late, 50), "late_p99": percentile(late, 99)}


async def costs(client: AsyncTaskHubGrpcClient, when: str) -> dict[str, float]:
    """Returns what the process holds, what it does while nothing is due, and what a turn costs."""
    memory, idle = resident_mebibytes(), await idle_percent()
    return {f"memory_{when}": memory, f"idle_{when}": idle, f"turn_{when}": await turn_cpu(client)}


async def lateness(hub: Hub) -> list[float]:
    """Waits for all timers to fire; returns the seconds from each one's instant to its commit on disk."""
    late = []
    async with asyncio.timeout(FINISH_SECONDS):
        for number in range(WAITING):
            state = await hub.tasks.wait_finished(f"sleeper-{number}")
            if state.status is not Status.COMPLETED or state.input is None:
                raise RuntimeError(f"{state.id} is {state.status}")
            due = datetime.fromisoformat(json.loads(state.input)).timestamp()
            late.append(state.updated_us / 1_000_000 - due)
    return late


def main() -> None:
    """Measures in the folder that the command line names."""
    print(json.dumps(asyncio.run(measure(Path(sys.argv[1])))), flush=True)


if __name__ == "__main__":
    main()
