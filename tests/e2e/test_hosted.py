"""The tests and the smoke test against a host that runs already, as the workflow `hosts` uses them."""

import os
import subprocess
import sys

import pytest

from scripts.processes import ROOT
from tests.support.app import System
from tests.support.azurite import Storage

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


def test_tests_of_the_app_run_against_a_host_that_runs_already(system: System, storage: Storage) -> None:
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


def test_a_deployed_app_that_works_passes_the_smoke_test(system: System) -> None:
    done = run("scripts.smoke", system.url, "--dependency", "absent")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "it is cancelled"


def test_the_smoke_test_says_what_is_wrong(system: System) -> None:
    done = run("scripts.smoke", system.url, "--dependency", "unheard-of")
    assert done.returncode == 1
    assert "POST /api/operations answers 400, not 202" in done.stderr
    assert "unheard-of" in done.stderr
