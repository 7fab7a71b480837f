"""The end-to-end tests on a task hub that is not ours, twice: what one run leaves must not fail the next."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from scripts.package import write
from scripts.processes import ROOT, ServerProcess, free_port, running
from tests.long_checks import SAMPLE_SEED
from tests.support.app import DEPENDENCIES
from tests.support.azurite import new_account

pytestmark = pytest.mark.long

AGAIN = ("operations", "dead_letters", "outbox", "sagas")
"""The files of the second run in a sample: those whose names and rows outlive a run."""
RUN_SECONDS = 400
"""More than three times what a run takes on two cores."""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Serve the packaged app on Microsoft's hub; yield what the tests read to find it."""
    folder = tmp_path_factory.mktemp("microsoft")
    write(folder / "app", "storage")
    storage, port, target_port = new_account(), free_port(), free_port()
    host = ServerProcess(
        [
            *(sys.executable, "-m", "tests.support.microsoft_hub"),
            *(str(folder / "app"), str(folder / "data"), str(port)),
        ],
        ready_url=f"http://127.0.0.1:{port}/admin/host/status",
        log=folder / "host.log",
        env={
            "AzureWebJobsStorage": storage.connection_string,
            "DEPENDENCIES_FILE": str(DEPENDENCIES),
            "FLAKY_TARGET_URL": f"http://127.0.0.1:{target_port}",
        },
    )
    with running(host):
        yield {
            "E2E_URL": f"http://127.0.0.1:{port}",
            "E2E_STORAGE": storage.connection_string,
            "E2E_TARGET_PORT": str(target_port),
        }


def run(environment: dict[str, str], *paths: str) -> subprocess.CompletedProcess[str]:
    # The summary stands at the end, where the excerpt of a failure is taken: each failed test with its error.
    options = ["-rfE", "--tb=short", "-m", "not long", "-p", "no:cacheprovider"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *paths],
        env=os.environ | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_SECONDS,
    )


@pytest.mark.parametrize("attempt", [1, 2])
def test_the_end_to_end_tests_pass_on_microsofts_hub(environment: dict[str, str], attempt: int) -> None:
    paths = ["tests/e2e"]
    if attempt > 1 and SAMPLE_SEED in os.environ:
        paths = [f"tests/e2e/test_{name}.py" for name in AGAIN]
    ended = run(environment, *paths)
    assert ended.returncode == 0, ended.stdout[-8000:]
    # Without an app at hand all would be skipped.
    assert re.search(r"\b[1-9]\d* passed\b", ended.stdout), ended.stdout[-8000:]
