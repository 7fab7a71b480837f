"""The tests and the smoke test against a host that runs already, as the workflow `hosts` uses them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.processes import ROOT, running
from tests.support.app import System
from tests.support.azurite import Account
from tests.support.onebox.process import AS_SHIPPED
from tests.support.target import Target

pytestmark = pytest.mark.long


def run(*command: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command],
        env={**os.environ, **more},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_tests_of_the_app_run_against_a_host_that_runs_already(system: System, storage: Account) -> None:
    # The target of this session serves the app; the one of the inner session gets a port that nobody calls.
    done = run(
        *(
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "tests/e2e/test_bad_input.py",
            "tests/e2e/test_handlers.py",
        ),
        E2E_URL=system.url,
        E2E_STORAGE=storage.connection_string,
    )
    assert done.returncode == 0, done.stdout
    # What is about the app ran, and what is about an app of its own did not.
    assert {".", "s"} <= set(done.stdout)


def test_a_host_that_asks_for_keys_gets_the_one_of_each_path(tmp_path: Path) -> None:
    target = Target(tmp_path)  # which the inner session starts
    locked = System(tmp_path, target, FUNCTIONS_WORKER_PROCESS_COUNT=AS_SHIPPED)
    locked.server.command.append("--auth")
    with running(locked.server):
        keys = json.loads((tmp_path / "data" / "keys.json").read_text())
        # One uses `/runtime/webhooks`, and one fires a timer through `/admin`.
        done = run(
            *(
                "pytest",
                "-q",
                "-rp",
                "-p",
                "no:cacheprovider",
                "tests/e2e/test_steering.py",
                "tests/e2e/test_outbox.py",
            ),
            *("-k", "(ended_through_the_platform and cancel) or test_the_sweeper_sends_what"),
            E2E_URL=locked.url,
            E2E_STORAGE=locked.storage.connection_string,
            E2E_TARGET_PORT=target.url.rpartition(":")[2],
            E2E_FUNCTION_KEY=keys["function"],
            E2E_MASTER_KEY=keys["admin"],
        )
    locked.client.close()
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("PASSED") == 2


def test_a_deployed_app_that_works_passes_the_smoke_test(system: System) -> None:
    done = run("scripts.smoke", system.url, "--dependency", "absent")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "it is cancelled"


def test_the_smoke_test_says_what_is_wrong(system: System) -> None:
    done = run("scripts.smoke", system.url, "--dependency", "unheard-of")
    assert done.returncode == 1
    assert "POST /api/operations answers 400, not 202" in done.stderr
    assert "unheard-of" in done.stderr
