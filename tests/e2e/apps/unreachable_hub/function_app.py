"""The app itself, except that its task hub cannot be reached: every start of an operation fails."""

import asyncio
import importlib.util
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.operations.operation import OperationInput

ROOT = Path(__file__).parents[4]


RUN_SECONDS = 0.4
"""How long a start tries: the queue counts its timeout from the end of that."""


def note(key: str, began: datetime) -> None:
    with Path(os.environ["STARTS_FILE"]).open("a", encoding="utf-8") as starts:
        starts.write(f"{key} {began.isoformat()} {datetime.now(UTC).isoformat()}\n")


async def refuse(_hub: TaskHub, operation: OperationInput, *_: Any) -> bool:
    """Notes begin and end of the start and fails as an absent task hub does."""
    began = datetime.now(UTC)
    await asyncio.sleep(RUN_SECONDS)
    note(operation.key, began)
    raise TaskHubUnavailableError("the task hub is down, as this test wants it")


patch.object(TaskHub, "start_operation", refuse).start()

spec = importlib.util.spec_from_file_location("the_app", ROOT / "function_app.py")
assert spec is not None
assert spec.loader is not None
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
app = module.app
