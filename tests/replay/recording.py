"""Recorded histories of the orchestrations, as files: protobuf in JSON, a folder per orchestrator.

    python -m tests.replay.record                    records every shape anew
    python -m tests.replay.record operation saga     those of some orchestrators

Record anew only what a change is meant to break, and only when nothing of that shape can be running.
They were recorded on Microsoft's in-memory backend, with the SDK's own worker over gRPC.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from durabletask.client import OrchestrationStatus

from durable_retry.features.histories.replay import RecordedHistory
from durable_retry.hub import task_hub as hub
from scripts.processes import ROOT
from tests.support.builders import Activities
from tests.support.hub import TaskHubStage, task_hub_stage
from tests.support.narrowing import existing

FOLDER: Final = Path(__file__).parent / "histories"

FOREIGN: Final = Path(__file__).parent / "foreign_histories"
"""What other code has written under the names of today's orchestrators: they must not replay it."""

_WAIT_SECONDS: Final = 60

type Steer = Callable[[TaskHubStage], Awaitable[None]]


@dataclass(frozen=True)
class Recording:
    """One execution of an orchestration, from its start to its completion, and what it returned."""

    history: RecordedHistory
    output: Any


def load(shape: str, folder: Path = FOLDER) -> Recording:
    """Read a recording: `operation/healthy`."""
    document = json.loads((folder / f"{shape}.json").read_text(encoding="utf-8"))
    return Recording(RecordedHistory.read(document), document["output"])


def shapes(folder: Path = FOLDER) -> list[str]:
    """Return the names of all recordings."""
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.glob("*/*.json"))


@dataclass(frozen=True)
class Shape:
    """How to bring a history about.

    Attributes:
        instance_id: Of the orchestration.
        given: Its input.
        answer: What its activities give.
        steer: What is done to it while it runs.
    """

    instance_id: str
    given: dict[str, Any]
    answer: Activities
    steer: Steer | None = None


async def record(orchestrator: str, name: str, shape: Shape, *, foreign: Any = None) -> None:
    """Run one shape and write its last execution's history.

    Args:
        orchestrator: Its name.
        name: Of the shape.
        shape: What to run.
        foreign: Other code that runs under the orchestrator's name; None for the app's own.
    """
    with task_hub_stage(parts=True, instead={} if foreign is None else {orchestrator: foreign}) as stage:
        stage.answer = shape.answer
        await stage.binding.start_instance(orchestrator, shape.instance_id, shape.given, again=False)
        if shape.steer is not None:
            await shape.steer(stage)
        instance = existing(await stage.binding.wait_for_end(shape.instance_id, _WAIT_SECONDS))
        assert instance.runtime_status is OrchestrationStatus.COMPLETED, instance
        events = await stage.binding.read_history(shape.instance_id)
        await hub.close_clients()
    document = {
        "instance_id": shape.instance_id,
        "output": instance.output,
        "events": [event for event in events if "executionCompleted" not in event],
    }
    # A stack trace names the folder of whoever recorded; where the project lies means nothing here.
    text = json.dumps(document, indent=1).replace(f"{ROOT}/", "")
    file = (FOLDER if foreign is None else FOREIGN) / orchestrator / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n", encoding="utf-8")
