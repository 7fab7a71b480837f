from collections.abc import Callable
from pathlib import Path

import pytest

from durable_retry.features.handlers import loading
from durable_retry.features.handlers.loading import handler_modules
from durable_retry.settings import configuration
from durable_retry.settings.app import AppSettings
from durable_retry.settings.configuration import Registration
from durable_retry.settings.mistakes import Mistakes

GOOD = '[dependencies.payments]\nbase_url = "http://127.0.0.1:9"\n'
HANDLER = """
import durable_retry

@durable_retry.operation("lonely-{name}", dependency="nobody")
async def lonely(order):
    return None
"""


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., str]:
    """Loads the app with a file of a text and modules, and returns its mistakes, one a line."""

    def load(text: str, *modules: str) -> str:
        (tmp_path / "dependencies.toml").write_text(text)
        settings = AppSettings(dependencies_file=str(tmp_path / "dependencies.toml"))
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setenv("HANDLERS", ",".join(modules))
        monkeypatch.setattr(configuration, "app_settings", lambda: settings)
        for name, empty in (("_handlers", {}), ("_mistakes", {}), ("_check_declared", None)):
            monkeypatch.setattr(f"durable_retry.features.handlers.registry.{name}", empty)
        monkeypatch.setattr(configuration, "_config", None)
        mistakes = Mistakes(tmp_path)
        configuration.load_app(mistakes)
        return "\n".join(f"{problem.pointer}: {problem.detail}" for problem in mistakes.problems)

    return load


@pytest.fixture
def start_with(start: Callable[..., str], tmp_path: Path) -> Callable[[str, str, str], str]:
    """The same with a module of these functions."""

    def load(text: str, module: str, functions: str) -> str:
        (tmp_path / f"{module}.py").write_text(f"import durable_retry\n{functions}")
        return start(text, module)

    return load


def test_handlers_are_added_to_the_apps_own(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = Registration(handlers=("orders.handlers", "shipping"))
    monkeypatch.setattr(loading, "registration", lambda: chosen)
    monkeypatch.setenv("HANDLERS", " billing.handlers, shipping ,")
    assert handler_modules() == ("orders.handlers", "shipping", "billing.handlers")


def test_a_handler_module_that_is_not_there_is_named(start: Callable[..., str]) -> None:
    assert "no_such_module" in start(GOOD, "no_such_module")


def test_a_handler_of_an_unknown_dependency_does_not_start(start: Callable[..., str], tmp_path: Path) -> None:
    for name in "12":
        (tmp_path / f"lonely_handlers_{name}.py").write_text(HANDLER.replace("{name}", name))
    printed = start(GOOD, "lonely_handlers_1", "lonely_handlers_2")
    assert "lonely_handlers_1.py:4: handler 'lonely-1': names" in printed
    assert "lonely_handlers_2.py:4: handler 'lonely-2': names" in printed

    assert f"'nobody', which {tmp_path / 'dependencies.toml'} lacks" in printed


def test_what_a_function_cannot_have_is_listed_with_its_module(start_with: Callable[..., str]) -> None:
    printed = start_with(
        GOOD,
        "wrong_functions",
        "@durable_retry.operation(dependency='payments', timeout=3600)\n"
        "def slow(order): ...\n"
        "@durable_retry.operation(dependency='payments')\n"
        "def unreadable(order: 'Missing'): ...\n",
    )
    assert "wrong_functions.py:2: handler 'slow': timeout: 3600 s + 10 s to spare" in printed
    assert "wrong_functions.py:4: handler 'unreadable': its annotations cannot be read" in printed


def test_events_that_nobody_could_get_are_listed_with_their_place(start_with: Callable[..., str]) -> None:
    event = "{ type = 'failed', queue = 'azure-webjobs-x' }"
    printed = start_with(
        f"{GOOD}\non_failure = [{event}]\n",
        "telling_functions",
        "from durable_retry import Event\n"
        "gone = Event.to_webhook('gone', '/hook', 'failed')\n"
        "@durable_retry.operation(dependency='payments', on_failure=[gone])\n"
        "def charge(order): ...\n"
        "@durable_retry.operation(dependency='payments', on_failure=[Event.to_queue('alarm', 't', 5)])\n"
        "def refund(order): ...\n",
    )
    assert "dependencies.payments.on_failure.0.queue: belongs to the task hub or the host" in printed
    assert "telling_functions.py:4: handler 'charge': /on_failure/1/dependency: no dependency has" in printed
    assert "telling_functions.py:6: handler 'refund': /on_failure/1: has data that is no object" in printed


def test_a_fallback_that_cannot_be_is_refused_with_its_place(start_with: Callable[..., str]) -> None:
    printed = start_with(
        f"{GOOD}\nfallback = 'payments'\n",
        "falling_functions",
        "@durable_retry.operation(dependency='payments', fallback='gone')\n"
        "def charge(order): ...\n"
        "@durable_retry.operation(dependency='payments', fallback='a b')\n"
        "def refund(order): ...\n",
    )
    assert "dependencies.payments.fallback: is the dependency itself" in printed
    assert "falling_functions.py:2: handler 'charge': /fallback: no dependency has the name gone" in printed
    assert "falling_functions.py:4: handler 'refund': /fallback: a name is letters" in printed


def test_a_mistake_in_the_file_hides_none_of_a_function(start_with: Callable[..., str]) -> None:
    printed = start_with(
        f"{GOOD}\ncolour = 1\n",
        "slow_functions",
        "@durable_retry.operation(dependency='payments', timeout=295)\n"
        "def charge(order): ...\n"
        "@durable_retry.operation(dependency='payments', fallback='gone')\n"
        "def refund(order): ...\n",
    )
    assert "dependencies.payments.colour: is not a known key" in printed
    assert "slow_functions.py:2: handler 'charge': timeout: 295 s + 10 s to spare" in printed
    assert "slow_functions.py:4: handler 'refund': /fallback: no dependency has the name gone" in printed


def test_a_lookup_of_a_function_that_cannot_be_is_refused_with_its_place(
    start_with: Callable[..., str],
) -> None:
    printed = start_with(
        GOOD,
        "asked_functions",
        "@durable_retry.operation(dependency='payments')\n"
        "def charge(order): ...\n"
        "@charge.lookup(settle_seconds=-1, settle=1)\n"
        "def find_charge(order): ...\n"
        "@durable_retry.operation(dependency='payments')\n"
        "def refund(order): ...\n"
        "@refund.lookup\n"
        "def find_refund(number): ...\n",
    )
    assert (
        "asked_functions.py:2: handler 'charge': /lookup/settle_seconds: must be greater than or equal"
        in printed
    )
    assert '/lookup/settle: is not a known key; did you mean "settle_seconds"?' in printed
    assert "asked_functions.py:8: handler 'refund.lookup': its parameter number is none that" in printed


def test_what_a_function_has_of_a_feature_that_was_taken_out_is_refused(
    start_with: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durable_retry.plugins.names_of_absent", lambda: {"lookup": "lookup"})
    printed = start_with(
        GOOD,
        "lacking_functions",
        "@durable_retry.operation(dependency='payments')\n"
        "def charge(order): ...\n"
        "@charge.lookup\n"
        "def find_charge(order): ...\n",
    )
    assert "handler 'charge': lookup is of the feature lookup, which this app lacks" in printed


def test_functions_are_checked_although_the_file_of_dependencies_is_wrong(
    start: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "lonely_handlers_3.py").write_text(HANDLER.replace("{name}", "3"))
    (tmp_path / "broken_handlers.py").write_text("import durable_retry\n\nraise RuntimeError('not today')\n")
    printed = start(GOOD + "colour = 1\n", "lonely_handlers_3", "broken_handlers")
    assert "dependencies.toml:3: dependencies.payments.colour: is not a known key" in printed
    assert "lonely_handlers_3.py:4: handler 'lonely-3': names the dependency 'nobody'" in printed
    assert "broken_handlers.py:3: cannot import broken_handlers: RuntimeError: not today" in printed
    assert "lonely-3" not in start("a = = 1", "lonely_handlers_3")
