from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from scripts.processes import eventually
from tests.support.app import System, dead_letter
from tests.support.target import Target

FILE = """
[defaults.retry]
strategy = "fixed"
initial_seconds = 8.0
jitter = "none"
[defaults.circuit]
break_seconds = 2
[dependencies.flaky]
[dependencies.{name}]
base_url = "${{FLAKY_TARGET_URL}}"
limits = {{ max_concurrency = 1 }}
{was}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "dependencies.toml"
    path.write_text(FILE.format(name="payments", was=""))
    return path


@pytest.fixture
def renamed(tmp_path: Path, file: Path, target: Target) -> Iterator[System]:
    system = System(tmp_path, target, DEPENDENCIES_FILE=str(file))
    with system.running():
        yield system


def test_what_waits_and_what_is_dead_under_the_old_name_goes_on_under_the_new_one(
    renamed: System, file: Path, key: str
) -> None:
    waits = [renamed.accepted(f"{key}-tried", "/fail/1", dependency="payments")]
    waits += [
        renamed.accepted(f"{key}-{number}", "/fail/1", dependency="payments", delay_seconds=8)
        for number in range(2)
    ]
    renamed.until(waits[0], "waiting_retry")
    event = {"type": "t", "dependency": "payments", "path": "/echo"}
    dead = dead_letter(renamed, f"{key}-dead", "/status/422", dependency="payments", on_failure=[event])
    assert renamed.server.stop() == 0
    file.write_text(FILE.format(name="pay", was='was = ["payments"]'))
    renamed.server.start()
    for name in ("payments", "pay"):
        assert renamed.accepted(f"{key}-0", "/fail/1", dependency=name, delay_seconds=8) == waits[1]
    for operation_id in waits:
        document = renamed.until(operation_id, "succeeded", within_seconds=60)
        assert (document["dependency"], document["attempt_count"]) == ("pay", 2)
    for name in ("payments", "pay"):
        found = renamed.items("dead-letters", dependency=name)
        assert [(letter["id"], letter["dependency"]) for letter in found] == [(dead, "payments")]
        letters = renamed.items("search", dependency=name, type="dead_letter")
        assert [letter["id"] for letter in letters] == [dead]
        (operation,) = renamed.items("operations", dependency=name, status="dead_lettered")
        assert operation["dead_letter"]["id"] == dead
        sent = partial(renamed.items, "outbox", dependency=name, status="sent")
        eventually(sent, "the event of the dead letter was sent")
        body = {"action": "archive", "filter": {"dependency": name}, "dry_run": True}
        assert renamed.client.post("/api/bulk-actions", json=body).json()["matched"] == 1
    edit = {"request": {"path": "/echo"}}
    renamed.client.post(f"/api/dead-letters/{dead}/replay", json=edit).raise_for_status()
    letter = renamed.client.get(f"/api/dead-letters/{dead}").json()
    assert renamed.until_replayed(letter, "succeeded")["dependency"] == "pay"
    late = renamed.accepted(f"{key}-late", "/echo", dependency="payments")
    assert renamed.until(late, "succeeded")["dependency"] == "pay"
    limits = renamed.client.get("/api/circuits/pay").json()["limits"]
    assert (limits["lent"], limits["waiting"]) == (0, 0)
