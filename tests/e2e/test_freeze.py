import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from scripts.processes import ROOT, eventually
from tests.support.app import System
from tests.support.target import Target

SETTINGS = Path(__file__).with_name("circuits.toml")
DEPENDENCIES = ("held", "freed", "scarce", "flaky")
"""The third has a retry budget alone, and the last not even that."""


@pytest.fixture(scope="module")
def freezing(tmp_path_factory: pytest.TempPathFactory, own_target: Target) -> Iterator[System]:
    """An app that only these tests hold."""
    folder = tmp_path_factory.mktemp("freezing")
    settings = str(SETTINGS)
    system = System(folder, own_target, DEPENDENCIES_FILE=settings, WEBSITE_AUTH_ENABLED="True")
    with system.running():
        yield system


def hold(system: System, key: str, *dependencies: str, **body: Any) -> dict[str, Any]:
    """Hold everything, and wait until the worker has read of it at these dependencies."""
    headers = {"x-ms-client-principal-name": "ada", "x-ms-client-principal-id": "ada"}
    answer = system.client.post("/api/hold", json=body, headers=headers)
    assert answer.status_code == 202, answer.text
    tries = count()

    def is_held(dependency: str) -> bool:
        operation_id = system.accepted(f"{key}-before-{next(tries)}", "/echo", dependency=dependency)
        return judged(system, operation_id) == "waiting_circuit"

    for each in dependencies:
        eventually(partial(is_held, each), f"an operation is held at {each}")
    assert shown(system)["status"] == "held"
    held: dict[str, Any] = answer.json()
    return held


def judged(system: System, operation_id: str) -> str:
    """Return the state of an operation once it was held or let go."""

    def look() -> str | None:
        state = str(system.status(operation_id)["status"])
        return state if state in {"waiting_circuit", "succeeded"} else None

    return eventually(look, f"{operation_id} is held or ended")


def shown(system: System) -> dict[str, Any]:
    document: dict[str, Any] = system.client.get("/api/hold").raise_for_status().json()
    return document


def until_shown(system: System, status: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        document = shown(system)
        return document if document["status"] == status else None

    return eventually(look, f"everything is {status}")


def thaw(system: System, **body: Any) -> None:
    answer = system.client.post("/api/hold/thaw", json=body)
    assert answer.status_code == 202, answer.text


def thaw_all(system: System) -> None:
    """Thaw until nothing is held: a circuit that opens as late as that stops it once more."""

    def is_free() -> bool:
        status = shown(system)["status"]
        if status == "held":
            system.client.post("/api/hold/thaw", json={"waves": [1], "wave_seconds": 0})
        return bool(status == "free")

    eventually(is_free, "everything is free", within_seconds=60)


def accepted(system: System, key: str, number: int, dependency: str) -> list[str]:
    keys = [f"{key}-{dependency}-{each}" for each in range(number)]
    return [system.accepted(each, "/echo", dependency=dependency) for each in keys]


def test_everything_is_accepted_and_nothing_starts_until_a_thaw(freezing: System, key: str) -> None:
    held = hold(freezing, key, *DEPENDENCIES, reason="wrong amounts")
    waiting = [each for name in DEPENDENCIES for each in accepted(freezing, key, 3, name)]
    for each in waiting:
        (wait,) = freezing.until(each, "waiting_circuit")["waits"]
        assert wait["kind"] == "freeze"
        assert wait["delay_reasons"][0] == f"held by ada since {held['since'][:19]}Z: wrong amounts"
    assert not [sent for sent in freezing.target.totals() if "-before-" not in sent]
    circuit = freezing.client.get("/api/circuits/held").json()
    assert (circuit["state"], circuit["hold"]["by"]) == ("closed", "ada")

    def counted() -> dict[str, Any] | None:
        preview: dict[str, Any] = shown(freezing)["preview"]
        return preview if preview["operations"] == 16 else None

    preview = eventually(counted, "the index shows all that waits")
    assert preview["complete"]
    assert {part["dependency"]: part["held"] for part in preview["by_dependency"]} == {
        "held": 4,
        "freed": 4,
        "scarce": 4,
        "flaky": 4,
    }

    thaw(freezing, waves=[0.01, 1], wave_seconds=1)
    # It takes the place of the first, or comes too late for that.
    again = freezing.client.post("/api/hold/thaw", json={"waves": [0.5, 1], "wave_seconds": 1})
    assert again.status_code in {202, 409}, again.text
    for each in waiting:
        assert freezing.until(each, "succeeded")["attempt_count"] == 1
    assert until_shown(freezing, "free")["reason"] is None
    assert freezing.client.post("/api/hold/thaw", json={}).status_code == 409


def test_the_first_circuit_that_opens_stops_a_thaw(freezing: System, key: str) -> None:
    hold(freezing, key, "dying", reason="the vendor deploys")
    waiting = accepted(freezing, key, 20, "dying")
    for each in waiting:
        freezing.until(each, "waiting_circuit")
    freezing.target.outage(on=True)
    thaw(freezing, waves=[0.5, 1], wave_seconds=20)
    opened = "the circuit of dying opened at "
    # Where the app is slow, no look falls into the time in which everything is thawing.
    stopped = eventually(lambda: (now := shown(freezing))["reason"].startswith(opened) and now, opened)
    freezing.target.outage(on=False)
    assert stopped["status"] == "held"
    assert stopped["reason"].endswith("in wave 1 of 2; before: the vendor deploys")
    assert len([each for each in freezing.target.totals() if each.startswith(f"{key}-dying")]) < len(waiting)
    thaw_all(freezing)
    for each in waiting:
        freezing.until(each, "succeeded")


def test_a_hold_ends_by_itself_and_outlives_the_app(freezing: System, key: str) -> None:
    until_shown(freezing, "free")
    hold(freezing, key, "held", reason="a drill", for_seconds=3600)
    freezing.server.stop()
    freezing.server.start()
    until_shown(freezing, "held")
    # The start may take longer than a test waits for the end.
    hold(freezing, f"{key}-short", "held", reason="a shorter drill", for_seconds=15)
    (operation_id,) = accepted(freezing, key, 1, "held")
    freezing.until(operation_id, "waiting_circuit")
    assert freezing.until(operation_id, "succeeded")["attempt_count"] == 1
    until_shown(freezing, "free")


COMMANDS = """
python -m retryctl held
python -m retryctl hold --reason "the ledger shows wrong amounts"
python -m retryctl thaw --waves 0.01,0.1,1
"""


def test_the_commands_of_the_page_hold_everything_and_thaw_it(freezing: System) -> None:
    until_shown(freezing, "free")
    nobody = "the index shows that nobody waits any more"
    eventually(lambda: shown(freezing)["preview"]["operations"] == 0, nobody)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "-euc", COMMANDS],  # noqa: S607 # bash as it is found
        env=os.environ | {"DURABLE_RETRY_URL": freezing.url, "PATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "within the hour 0 operations would run" in ran.stdout
    assert "the ledger shows wrong amounts" in ran.stdout
    assert "thaws in waves of 0.01, 0.1, 1" in ran.stdout
    # Nobody waits, so no wave is watched.
    until_shown(freezing, "free")
