"""Two lives of the app: in the first, operations stand still at named steps until it is killed."""

import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import httpx

from scripts.processes import eventually
from tests.support.app import System
from tests.support.azurite import Storage
from tests.support.target import Target

_DEPENDENCIES = """
[defaults.circuit]
enabled = false

# Longer than histories are kept: each end completes a record.
[defaults.idempotency]
ttl_seconds = 604800

[defaults.timeouts]
connect_seconds = 10
attempt_seconds = 20

[dependencies.flaky]
base_url = "${FLAKY_TARGET_URL}"

[dependencies.unsafe]
base_url = "${FLAKY_TARGET_URL}"
idempotency = { header = "" }
"""


class HeldLife:
    """An app that was killed while operations stood still, see `tests.fault.app.crash.held_app`.

    Attributes:
        system: The app.
    """

    def __init__(self, folder: Path, storage: Storage, handlers: str = "") -> None:
        self._target = Target(folder)
        self._target.server.start()
        file = folder / "dependencies.toml"
        file.write_text(_DEPENDENCIES)
        self._holds = folder / "holds.json"
        self.system = System(
            folder,
            self._target,
            AzureWebJobsStorage=storage.connection_string,
            DEPENDENCIES_FILE=str(file),
            PYTHON_THREADPOOL_THREAD_COUNT="32",
            HANDLERS=handlers,
        )
        port = str(httpx.URL(self.system.url).port)
        child = [sys.executable, "-m", "tests.fault.app.crash.held_app"]
        self.system.server.command = [*child, str(folder / "data"), port, str(self._holds)]

    def hold(self, points: Mapping[str, list[str]]) -> None:
        """Begin the first life; what has one of these names stands still at its point."""
        self._holds.write_text(json.dumps(points))
        self.system.server.start()

    def die(self, wanted: Counter[str]) -> None:
        """Kill the app once so many operations stand at each point."""
        eventually(lambda: self._held() == wanted, "each operation stands at its step", within_seconds=60)
        self.system.server.kill()

    def begin_again(self) -> None:
        self._holds.write_text("{}")
        self.system.server.start()

    def keys_of(self, case: str) -> list[str | None]:
        """The idempotency key of each request that the target received for a case, named in the query."""
        totals = self._target.totals()
        return [
            key or None
            for key in totals
            for one in self._target.received(key)["tries"]
            if one["query"] in {f"case={case}!", f"case={case}%21"}
        ]

    def end(self) -> None:
        self.system.client.close()
        self.system.server.stop()
        self._target.server.stop()

    def _held(self) -> Counter[str]:
        file = self._holds.with_suffix(".held")
        return Counter(file.read_text().split()) if file.exists() else Counter()
