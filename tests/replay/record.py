"""`python -m tests.replay.record [ORCHESTRATOR ...]`; see `recording`."""

import asyncio
import sys

from durable_retry.base.names import OPERATION
from durable_retry.features.workflows.names import SAGA
from orchestrators.saga import saga
from tests.replay.operation_shapes import operation_shapes
from tests.replay.part_shapes import part_shapes
from tests.replay.recording import record
from tests.replay.with_a_wait import with_a_wait


async def main() -> None:
    shapes = {OPERATION: operation_shapes()} | part_shapes()
    for orchestrator in sys.argv[1:] or shapes:
        for name, shape in shapes[orchestrator].items():
            await record(orchestrator, name, shape)
    if not sys.argv[1:]:
        await record(SAGA, "with_a_wait", part_shapes()[SAGA]["succeeded"], foreign=with_a_wait(saga))


if __name__ == "__main__":
    asyncio.run(main())
