"""One side's rates: `python -m bench.hub_rates onebox|memory FOLDER`; prints them as JSON.

Beside each rate stands the processor time that a step took, which other work on the machine hardly changes.

The first instance's time counts from the start of the hub, imports left out.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from durabletask.client import AsyncTaskHubGrpcClient, OrchestrationStatus

from bench.hub_sides import in_memory_hub, onebox_hub

FINISH_SECONDS = 120
# name of the rate -> orchestrator, instances at once, steps of each
WORK = {"turns": ("generations", 50, 39), "calls": ("calls", 50, 20), "adds": ("adds", 50, 20)}


async def run(client: AsyncTaskHubGrpcClient, orchestrator: str, instances: int, steps: int) -> float:
    """Runs so many instances at once to their ends; returns the seconds that it took."""
    began = time.perf_counter()
    ids = [await client.schedule_new_orchestration(orchestrator, input=steps) for _ in range(instances)]
    async with asyncio.timeout(FINISH_SECONDS):
        # One after the other: each wait holds one of the in-memory backend's ten threads.
        ended = [await client.wait_for_orchestration_completion(each) for each in ids]
    took = time.perf_counter() - began
    for state in ended:
        if state is None or state.runtime_status is not OrchestrationStatus.COMPLETED:
            raise RuntimeError(f"{orchestrator} did not complete: {state}")
    return took


@asynccontextmanager
async def side(name: str, folder: Path) -> AsyncIterator[AsyncTaskHubGrpcClient]:
    """Runs the side of this name."""
    if name == "memory":
        async with in_memory_hub() as client:
            yield client
        return
    async with onebox_hub(folder) as (_, client):
        yield client


async def measure(name: str, folder: Path) -> dict[str, float]:
    """Returns steps per second, processor seconds per step, and the seconds to the first end."""
    began = time.perf_counter()
    async with side(name, folder) as client:
        await run(client, "calls", 1, 1)
        rates = {"first_seconds": time.perf_counter() - began}
        for kind, (orchestrator, instances, steps) in WORK.items():
            busy = time.process_time()
            took = await run(client, orchestrator, instances, steps)
            done = instances * (steps + (kind == "turns"))  # the first generation is a turn too
            rates[kind] = done / took
            rates[f"{kind}_cpu"] = (time.process_time() - busy) / done
    return rates


def main() -> None:
    """Measures what the command line names."""
    print(json.dumps(asyncio.run(measure(sys.argv[1], Path(sys.argv[2])))), flush=True)


if __name__ == "__main__":
    main()
