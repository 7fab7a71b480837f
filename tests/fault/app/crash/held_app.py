"""The app on onebox, with operations that stop for ever at a named step, to be killed there by kill -9.

Usage: python -m tests.fault.app.crash.held_app DATA PORT FILE

The file holds JSON: step -> operation id and key, or texts that all stand in its arguments, joined by `&`.
Once a step of such an operation is due (`call.before`) or done (`call.after`), it stands still, and a line in
FILE.held says so. Before a step, nothing of it has been done; after it, all of it has been done and nothing
has been answered.
"""

import asyncio
import inspect
import json
import os
import sys
import threading
from collections.abc import Callable
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from onebox.host import Host, Options
from onebox.logs import set_up_logs
from onebox.worker.runner import Runner
from scripts.processes import ROOT

STEPS = {
    "begin": ("orchestrators.operation", "_end_whatever_happens"),
    "marker": ("durable_retry.attempt.attempt", "insert_marker"),
    "call": ("durable_retry.attempt.http_request", "send"),
    "once": ("durable_retry.features.handlers.call_transport", "insert_marker"),
    "post": ("durable_retry.features.handlers.call_transport", "CallTransport._answer"),
    "step": ("durable_retry.features.handlers.handler", "change_step"),
    "note": ("durable_retry.attempt.attempt", "write_outcome"),
    "take": ("durable_retry.operations.actions", "take_commit"),
    "commit": ("durable_retry.operations.actions", "commit_success"),
    "outbox": ("orchestrators.outbox", "follow"),
    "complete": ("entities.idempotency_record", "complete"),
    "pending": ("durable_retry.features.outbox.sending", "pending_of"),
    "send": ("durable_retry.features.outbox.sending", "send_message"),
    "sent": ("durable_retry.features.outbox.sending", "mark_sent"),
}
"""Each step of an operation, in order, and the function that takes it."""


class Holds:
    """The place where each operation stands still."""

    def __init__(self, file: Path) -> None:
        self._names: dict[str, list[str]] = json.loads(file.read_text())
        self._held = file.with_suffix(".held")

    def at(self, point: str, arguments: object) -> bool:
        """Return whether this is the step of the operation that is named for it, and note that it stands."""
        text = repr(arguments)
        names = self._names.get(point, ())
        holds = any(all(part in text for part in name.split("&")) for name in names)
        if holds:
            with self._held.open("a") as lines:
                lines.write(f"{point}\n")
        return holds


def held(step: str, function: Callable[..., Any], holds: Holds) -> Callable[..., Any]:
    """Returns the function with a place to stand still before and after it."""

    def call(*args: Any, **more: Any) -> Any:
        if holds.at(f"{step}.before", (args, more)):
            threading.Event().wait()
        result = function(*args, **more)
        if holds.at(f"{step}.after", (args, more)):
            threading.Event().wait()
        return result

    async def call_async(*args: Any, **more: Any) -> Any:
        if holds.at(f"{step}.before", (args, more)):
            await asyncio.Event().wait()
        result = await function(*args, **more)
        if holds.at(f"{step}.after", (args, more)):
            await asyncio.Event().wait()
        return result

    return call_async if inspect.iscoroutinefunction(function) else call


def main() -> None:
    data, port, file = sys.argv[1:]
    sys.path.insert(0, str(ROOT))
    holds = Holds(Path(file))
    for step, (module, path) in STEPS.items():
        *owners, name = path.split(".")
        place = reduce(getattr, owners, import_module(module))
        setattr(place, name, held(step, getattr(place, name), holds))
    # A step that stands still blocks its thread, so none may run on the thread that serves.
    patch.object(Runner, "is_quick", return_value=False).start()
    set_up_logs(verbose=False)
    os.environ["FUNCTIONS_WORKER_PROCESS_COUNT"] = "0"  # the steps are held in this process
    options = Options(app=ROOT, host="127.0.0.1", port=int(port), data=Path(data))
    asyncio.run(Host(options).serve())


if __name__ == "__main__":
    main()
