import subprocess
import sys

import pytest

from examples.demo.scenes import SCENES, Verdict
from scripts.processes import ROOT

pytestmark = pytest.mark.long


def test_the_demo_prints_its_timeline_and_everything_ends_as_it_should() -> None:
    demo = subprocess.run(
        [sys.executable, "-m", "examples.demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    for line in (
        "attempt 1 answered 503, transient",
        "s: mailer answers 429: The flaky target was asked to answer so, this operation waits until",
        "the circuit is open",
        "its circuit is closed",
        "dead letter: MalformedJson",
        "/api/dashboard#/circuits/warehouse",
    ):
        assert line in demo.stdout


def test_an_end_that_should_not_be_fails_the_demo() -> None:
    assert Verdict("a", "succeeded, 1 calls", "succeeded, 1 calls").holds
    assert not Verdict("a", "succeeded, 1 calls", "succeeded, 2 calls").holds
    assert len(SCENES) == 6
