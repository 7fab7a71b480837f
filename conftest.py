"""What holds for every test, and what many tests share."""

import os
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, override

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadGroupScheduling

from durable_retry.app import subscribe_watchers
from durable_retry.plugins import hook
from durable_retry.storage import clients as storage_clients
from durable_retry_console.index import notes as operation_notes
from scripts.processes import ROOT, running
from tests.support.app import HOSTED_URL, RUN
from tests.support.azurite import Storage, new_account, stop_emulator, use_account
from tests.support.semantics import be_on_azures_terms, reason_for_own_terms
from tests.support.tables import TablesInMemory, use_own_tables
from tests.support.target import Target

STRICT_TYPING = "AZURE_FUNCTIONS_DURABLE_STRICT_TYPING"
ONEBOX = ROOT / "packages" / "onebox"


# The same examples in every run, and no clock where a machine may be busy.
settings.register_profile(
    "steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--semantics", default="", help="of onebox's task hub: azure, or azure:SEED")


def pytest_configure(config: pytest.Config) -> None:
    """Let tests declare functions of any dependency, and give the task hub's terms to what they start."""
    # A test process loads the app and holds functions of many others.
    if module := hook("handlers"):
        vars(import_module(f"{module}.loading"))["check_later_ones"] = lambda _check: None
    semantics = config.getoption("--semantics")
    if semantics:
        be_on_azures_terms(semantics)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what holds with onebox, or with its task hub's own terms, only."""
    group_by_app(items)
    for item in items:
        reason = None
        if config.getoption("--semantics"):
            reason = reason_for_own_terms(item)
            item.add_marker(pytest.mark.timeout(1_800), append=False)  # what it waits for takes longer
        if HOSTED_URL and "system" not in getattr(item, "fixturenames", ()):
            reason = "is not about the app at E2E_URL"
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


OF_MANY_FILES: Final = ("seen", "system", "tailored", "onebox", "features")
"""Apps for the tests of many files, which run on one worker of pytest-xdist, so that the app starts once."""


def group_by_app(items: list[pytest.Item]) -> None:
    """Mark the files that share an app."""
    groups = {
        item.path: name
        for item in items
        for name in OF_MANY_FILES
        if name in getattr(item, "fixturenames", ())
    }
    for item in items:
        if item.path in groups:
            item.add_marker(pytest.mark.xdist_group(groups[item.path]))


class ByApp(LoadGroupScheduling):  # type: ignore[misc] # its package has no types
    """Keeps the files that share an app on one worker, and each other file whole: its servers start once."""

    @override
    def _split_scope(self, nodeid: str) -> str:
        group = super()._split_scope(nodeid)
        return nodeid.partition("::")[0] if group == nodeid else group


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByApp | None:
    """Take that for `--dist loadgroup`."""
    return ByApp(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.fixture(scope="module", autouse=True)
def plain_sdk(request: pytest.FixtureRequest) -> Iterator[None]:
    """onebox runs anyone's app: what this app switches on in the SDK stays out of onebox's own tests.

    The app sets it for its whole process when it is loaded, and a test process may hold tests of both.
    """
    with pytest.MonkeyPatch.context() as environment:
        if request.node.path.is_relative_to(ONEBOX):
            environment.delenv(STRICT_TYPING, raising=False)
        yield


def pytest_unconfigure() -> None:
    """Stop what tests shared, and wait for what they left to stop while they went on."""
    stop_emulator()
    if stage := sys.modules.get("tests.support.hub"):
        stage.wait_for_stops()


@pytest.fixture(scope="session", autouse=True)
def no_writers_in_the_background() -> Iterator[None]:
    """Tests that register the app start no thread that writes metrics or activity."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("durable_retry.app.begin_plugins", lambda: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def facts_are_watched() -> None:
    """What `register` subscribes to facts watches in every test, as many call the core without an app."""
    subscribe_watchers()


@pytest.fixture(autouse=True)
def no_notes_of_earlier_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test notes for the index is written by no other test."""
    monkeypatch.setattr(operation_notes, "WRITER", operation_notes.IndexWriter())


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """One flaky target for all tests; each test uses keys of its own."""
    port = os.environ.get("E2E_TARGET_PORT")
    target = Target(tmp_path_factory.mktemp("target"), int(port) if port else None)
    with running(target.server):
        yield target


@pytest.fixture(scope="module")
def azurite(request: pytest.FixtureRequest) -> Storage:
    """The storage account of this test's folder: no other folder's rows and messages are in it."""
    return _account_of(request.path.parent)


@cache
def _account_of(_folder: Path) -> Storage:
    return new_account()


@pytest.fixture
def storage(azurite: Storage, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """The same, as the account of the app in this process."""
    use_account(monkeypatch, azurite.connection_string)
    return azurite


@pytest.fixture
def own_tables(request: pytest.FixtureRequest, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """The same, with tables that no other test writes to."""
    use_own_tables(request.node.name, monkeypatch)
    return storage


@pytest.fixture
def tables_in_memory(monkeypatch: pytest.MonkeyPatch) -> TablesInMemory:
    """The account of the app in this process without an Azurite."""
    account = TablesInMemory()
    monkeypatch.setattr(storage_clients, "table_service", lambda: account)
    return account


@pytest.fixture
def no_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No handler is registered, and those that a test registers are forgotten after it."""
    monkeypatch.setattr("durable_retry.features.handlers.registry._handlers", {})


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """An idempotency key that no other test uses, nor this one in another run against the same app."""
    name: str = f"{request.node.name}-{RUN}" if HOSTED_URL else request.node.name
    return "".join(letter if letter.isalnum() else "-" for letter in name)
