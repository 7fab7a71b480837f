"""One life of a hub, run as a process of its own: submits a batch of work, and dies at a point if asked to.

Usage: python -m tests.support.onebox.hub_child FOLDER LIFE [POINT VISIT | wait]

Prints a line when it begins, and one for all that was accepted. `wait` leaves it to the parent to kill it.
Without a point it waits for everything to end and prints a report as its last line. INVOKER in the
environment names the class of its invoker.
"""

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import onebox.hub.database
from onebox.clock import SystemClock
from onebox.hub import FaultPoint, Hub, HubSettings
from onebox.hub.listing import InstanceFilter
from onebox.hub.model import InstanceFinishedError
from tests.support.onebox.durable_app import AppInvoker, WaitingInvoker
from tests.support.onebox.workload import MIXED_COUNTER, SIGNALS_COUNTER, Cut, counting_app, submit

_MIXED = 3
_INVOKERS = {each.__name__: each for each in (AppInvoker, WaitingInvoker)}


def say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


async def submit_batch(hub: Hub, life: int) -> None:
    await submit(hub.tasks, "rounds", f"rounds-{life}", "2")
    say("accepted", f"rounds-{life}")
    for number in range(_MIXED):
        instance_id = f"mixed-{life}-{number}"
        await submit(hub.tasks, "mixed", instance_id)
        say("accepted", instance_id)
        await hub.tasks.raise_event(instance_id, "go", None)


async def finish(hub: Hub) -> dict[str, object]:
    """Send what a death may have kept from being sent, wait for all, and print how it ended."""
    page = hub.tasks.query(InstanceFilter(), None, None)
    everything = page.items
    while page.token is not None:
        page = hub.tasks.query(InstanceFilter(), None, page.token)
        everything += page.items
    for state in everything:
        if state.name == "mixed" and not state.status.is_terminal:
            with suppress(InstanceFinishedError):
                await hub.tasks.raise_event(state.id, "go", None)
    ended = [await hub.tasks.wait_finished(state.id) for state in everything]
    await hub.settled()
    counter, signals = hub.tasks.get_entity(MIXED_COUNTER), hub.tasks.get_entity(SIGNALS_COUNTER)
    return {
        "outputs": {state.id: state.output for state in ended if state.name != "child"},
        "counter": counter and counter.state,
        "signals": signals and signals.state,
    }


async def live(folder: Path, life: int, cut: Cut, *, to_the_end: bool) -> None:
    app = counting_app(folder / "runs.log")
    # Short, so that a death may meet the packing; and groups that wait for a client.
    settings = HubSettings(archive_after_seconds=0.02, ride_seconds=0.004)
    invoker = _INVOKERS[os.environ.get("INVOKER", "AppInvoker")]
    hub = Hub(folder / "hub.db", invoker(app), SystemClock(), settings, faults=cut)
    await hub.start()
    say("began")
    await submit_batch(hub, life)
    if to_the_end:
        say(json.dumps(await finish(hub)))
        await hub.stop()
        return
    await asyncio.sleep(10)  # the cut comes while this life works; the parent notices if it does not
    say("survived")


def main() -> None:
    # A short life writes little: with a small log it copies that into the main file all the same.
    onebox.hub.database._CHECKPOINT_PAGES = int(os.environ.get("CHECKPOINT_PAGES", "4000"))
    folder, life, *where = sys.argv[1:]
    point, visit = (FaultPoint(where[0]), int(where[1])) if len(where) > 1 else (None, 0)
    cut = Cut(point, visit, lambda: os.kill(os.getpid(), signal.SIGKILL))
    asyncio.run(live(Path(folder), int(life), cut, to_the_end=not where))


if __name__ == "__main__":
    main()
