"""kill -9 of the whole app at random instants, `KILLS` times: nothing is lost, and what is late says why.

What was seen is in `kills.json` in the test's folder.
"""

import json
import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from scripts.processes import PLAIN_HTTP, running
from tests.long_checks import SAMPLE_SEED
from tests.support.app import System, operation, unexplained
from tests.support.azurite import Storage
from tests.support.target import Target

KILLS = int(os.environ.get("KILLS", "5" if SAMPLE_SEED in os.environ else "200"))
SEED = int(os.environ.get(SAMPLE_SEED, "31"))
LONGEST_LIFE_SECONDS = 2.0
SECONDS_OF_A_LIFE = 30
TAKEN = {httpx.codes.OK, httpx.codes.ACCEPTED}

pytestmark = [pytest.mark.long, pytest.mark.timeout(KILLS * SECONDS_OF_A_LIFE + 600)]


@pytest.fixture(params=["0", "1"], ids=["own process", "worker process"])
def mortal(request: pytest.FixtureRequest, tmp_path: Path, target: Target) -> Iterator[System]:
    """The app on storage that is not killed with it."""
    storage = Storage(tmp_path)
    system = System(
        tmp_path,
        target,
        AzureWebJobsStorage=storage.connection_string,
        FUNCTIONS_WORKER_PROCESS_COUNT=request.param,
    )
    with running(storage.server), system.running():
        yield system


def an_operation(key: str, number: int) -> dict[str, Any]:
    """One that succeeds at its first, second or third attempt, with time for each on a busy machine."""
    more = {"retry": {"initial_seconds": 1}, "deadline_seconds": 3_600}
    return operation(key, f"/fail/{number % 3}", dependency="crowded", **more)


class Client:
    """Posts one operation after the other while the app lives and dies."""

    def __init__(self, url: str, key: str) -> None:
        self.accepted: dict[str, str] = {}
        self.refused = Counter[str]()
        self._url, self._key = url, key
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._post_all)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def _post_all(self) -> None:
        number = 0
        with httpx.Client(base_url=self._url, timeout=10, verify=PLAIN_HTTP) as client:
            while not self._over.wait(0.1):
                key = f"{self._key}-{number}"
                try:
                    answer = client.post("/api/operations", json=an_operation(key, number))
                except httpx.TransportError:
                    continue
                if answer.status_code in TAKEN:
                    self.accepted[key] = answer.json()["operation_id"]
                    number += 1
                else:
                    self.refused[answer.text] += 1


def test_nothing_accepted_is_lost_by_kills_at_random_instants(
    mortal: System, key: str, tmp_path: Path
) -> None:
    draws = random.Random(SEED)  # noqa: S311 - instants that a seed gives again
    client = Client(mortal.url, key)
    over = threading.Event()
    try:
        for _ in range(KILLS):
            over.wait(draws.uniform(0, LONGEST_LIFE_SECONDS))  # the instant of the death
            mortal.server.kill()
            mortal.server.start()
    finally:
        client.end()
    late = []
    for name, operation_id in client.accepted.items():
        document = mortal.until(operation_id, "succeeded", within_seconds=120)
        assert mortal.target.received(name)["most_in_flight"] == 1
        late += unexplained(document)
    seen = {"kills": KILLS, "operations": len(client.accepted), "late without a reason": late}
    (tmp_path / "kills.json").write_text(json.dumps(seen))
    assert client.accepted, client.refused
    assert late == []
