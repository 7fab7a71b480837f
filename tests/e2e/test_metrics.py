from pathlib import Path
from typing import Any

import pytest

from scripts.processes import eventually
from tests.support.app import System
from tests.support.target import Target

SETTINGS = """
[defaults.retry]
strategy = "fixed"
initial_seconds = 0.2
jitter = "none"
max_attempts = 8

[dependencies.flaky]
base_url = "${FLAKY_TARGET_URL}"
circuit = { consecutive_failures = 3, minimum_calls = 3, window_seconds = 10, break_seconds = 1 }

[dependencies.steady]
base_url = "${FLAKY_TARGET_URL}"
"""


def total(system: System, dependency: str = "flaky") -> dict[str, Any]:
    answer = system.client.get("/api/metrics", params={"dependency": dependency})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["total"]
    return found


@pytest.mark.long
def test_an_outage_leaves_its_trace_over_restarts(tmp_path: Path, target: Target) -> None:
    (tmp_path / "dependencies.toml").write_text(SETTINGS)
    system = System(tmp_path, target, DEPENDENCIES_FILE=str(tmp_path / "dependencies.toml"))
    with system.running():
        # It fails three times, so that the circuit opens, and recovers.
        document = system.until(system.accepted("outage", "/fail/3", dependency="flaky"), "succeeded")
        assert document["attempt_count"] == 4
        system.until(system.accepted("fine", "/echo", dependency="steady"), "succeeded")
        query = {"kind": "circuit", "dependency": "flaky"}
        (outage,) = eventually(
            lambda: [
                outage
                for outage in system.client.get("/api/activity", params=query).json()["items"]
                if outage["until"] is not None
            ],
            "the outage is over",
        )
        assert outage["what"].startswith("the circuit was open for ")
        assert outage["reason"].startswith("3 failures in a row; the last error: 503")
        assert outage["who"] is None

        # At once: what no timer has written yet is written at the end of the process.
        assert system.server.stop() == 0
        system.server.start()

        found = total(system)
        assert (found["started"], found["attempts"], found["retries"]) == (1, 4, 3)
        assert (found["failures"], found["failures_by_category"]) == (3, {"transient": 3})
        assert found["amplification"] == 4.0
        assert found["ended_by_status"] == {"succeeded": 1}
        assert found["openings"] == 1
        assert found["operation_ms"]["p95"] >= 1_000  # it waited for the circuit
        assert found["waits"]["circuit"]["count"] >= 1
        assert found["late_ms"]["p50"] is not None
        assert total(system, "steady")["amplification"] == 1.0

        # A process that is killed loses no more than a few seconds: the next write is what to wait for.
        system.until(system.accepted("later", "/fail/1", dependency="flaky"), "succeeded")
        eventually(lambda: total(system)["attempts"] == 6, "the second operation is in the metrics")
        system.server.kill()
        system.server.start()
        assert total(system)["attempts"] == 6

        whole = system.client.get("/api/metrics").json()
        assert {one["dependency"]: one["attempts"] for one in whole["dependencies"]} == {
            "queue": 0,
            "flaky": 6,
            "steady": 1,
        }
        assert sum(point["openings"] for point in whole["points"]) == 1
