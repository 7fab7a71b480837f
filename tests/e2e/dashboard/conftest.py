from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.support.app import System, dead_letter
from tests.support.browser import Window, chromium
from tests.support.target import Target

SETTINGS = Path(__file__).with_name("dependencies.toml")

expect.set_options(timeout=20_000)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One browser for this folder: Playwright's loop must be gone before asynchronous tests run."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def seen(browser: Browser, tmp_path_factory: pytest.TempPathFactory, target: Target) -> Iterator[System]:
    """An app with something to see of everything."""
    assert browser.is_connected()
    system = System(
        tmp_path_factory.mktemp("dashboard"),
        target,
        DEPENDENCIES_FILE=str(SETTINGS),
        HANDLERS="tests.support.handlers",
        ALERT_DEAD_LETTERS="0.5",
        ALERT_SLACK_URL=f"{target.url}/echo",
    )
    with system.running():
        event = {"type": "charge.completed", "queue": "dashboard-events", "data": {}}
        system.until(system.accepted("fine", "/echo", on_success=[event]), "succeeded")
        dead_letter(system, "hopeless")
        system.until(system.accepted("waits", "/fail/9", dependency="patient"), "waiting_retry")
        yield system


@pytest.fixture
def window(browser: Browser, seen: System) -> Iterator[Window]:
    with Window(browser, seen.url) as window:
        yield window
