"""An app on onebox over several lives, and the work that is given to it."""

import signal
import sys
from collections import Counter
from pathlib import Path

import httpx

from scripts.processes import PLAIN_HTTP, ServerDidNotStartError, ServerProcess, eventually, free_port
from tests.support.azurite import Storage
from tests.support.onebox.process import APPS

APP = APPS / "ledger"
STATUS = "/runtime/webhooks/durabletask/instances"


class Lives:
    """One data folder, one storage account and one ledger, with one process after the other.

    Attributes:
        jobs: Messages that were put into the queue.
        accepted: Instances whose start was answered with 202.
        refused: Instances whose start got another answer, or none.
    """

    def __init__(self, folder: Path, storage: Storage) -> None:
        self._ledger = folder / "ledger"
        self._ledger.touch()
        port = free_port()
        self._url = f"http://127.0.0.1:{port}"
        self._server = ServerProcess(
            [],
            ready_url=f"{self._url}/admin/host/status",
            log=folder / "onebox.log",
            env={"AzureWebJobsStorage": storage.connection_string, "LEDGER": str(self._ledger)},
        )
        self._command = [sys.executable, "-m", "tests.support.onebox.host_child"]
        self._arguments = [str(APP), str(folder / "data"), str(port)]
        self._jobs = storage.base64_queue("jobs")
        self._jobs.create_queue()  # before any life: the first one serves before its listener has made it
        self._poison = storage.base64_queue("jobs-poison")
        self.jobs: list[str] = []
        self.accepted: list[str] = []
        self.refused: list[str] = []

    def begin(self, *how: str) -> None:
        """Starts a life; see `host_child.py` for its ends."""
        self._server.command = [*self._command, *self._arguments, *how]
        struck = len(self.struck())
        try:
            self._server.start()
        except ServerDidNotStartError:
            if len(self.struck()) == struck:  # else what was left to do has led it to its end at once
                raise

    def submit_job(self, body: str) -> None:
        self._jobs.send_message(body)
        self.jobs.append(body)

    def post(self, instance_id: str) -> None:
        """Asks for an instance, and notes what came of it."""
        try:
            answer = httpx.post(f"{self._url}/api/start/{instance_id}", timeout=10, verify=PLAIN_HTTP)
        except httpx.TransportError:
            self.refused.append(instance_id)
            return
        (self.accepted if answer.status_code == httpx.codes.ACCEPTED else self.refused).append(instance_id)

    def died(self) -> bool:
        """Whether this life ends by kill -9 within the time of a test."""
        process = self._server.process
        if process is None:
            return True
        eventually(lambda: process.poll() is not None, "the process dies")
        self._server.process = None
        return process.returncode == -signal.SIGKILL

    def struck(self) -> list[str]:
        """The points that were struck so far, in all lives."""
        lines = self._server.log.read_text().splitlines() if self._server.log.exists() else []
        return [line.removeprefix("struck ") for line in lines if line.startswith("struck ")]

    def raised(self, point: str) -> int:
        """How often an exception was raised at a point; a kill is none."""
        how = self._server.command[len(self._command) + len(self._arguments)]
        return self.struck().count(point) if how == "raise" else 0

    def entries(self) -> Counter[str]:
        """How often each line stands in the ledger."""
        return Counter(self._ledger.read_text().splitlines())

    def runs_of_activity(self, instance_id: str) -> Counter[str]:
        """How often the activity of an instance ran, per life."""
        entries = self.entries()
        mine = (line for line in entries if line.startswith(f"activity {instance_id} in "))
        return Counter({line: entries[line] for line in mine})

    def until_finished(self, instance_id: str) -> None:
        """Waits for an instance to complete with its own id as its output."""

        def look() -> bool:
            state = httpx.get(f"{self._url}{STATUS}/{instance_id}", verify=PLAIN_HTTP).json()
            return bool(state["runtimeStatus"] == "Completed" and state["output"] == instance_id)

        eventually(look, f"{instance_id} completes")

    def until_queue_is_empty(self) -> None:
        """Waits until no message is left, hidden ones included."""
        eventually(
            lambda: self._jobs.get_queue_properties().approximate_message_count == 0, "the queue is empty"
        )

    def poisoned(self) -> list[str]:
        return [message.content for message in self._poison.receive_messages(messages_per_page=32)]

    def end(self) -> int:
        """Stops the life that goes on, if any, and leaves nothing to another test."""
        code = self._server.stop()
        for queue in (self._jobs, self._poison):
            queue.delete_queue()
            queue.close()
        return code
