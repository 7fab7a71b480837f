import io
from pathlib import Path

import pytest

from durable_retry.engine.config import Config, ConfigError
from durable_retry.handlers import HandlerSetupError
from durable_retry.settings import configuration
from durable_retry.settings.app import AppSettings, SettingsError
from durable_retry.settings.maintenance import maintenance_settings

GOOD = '[dependencies.payments]\nbase_url = "http://127.0.0.1:9"\n'
HANDLER = """
from pydantic import BaseModel
from durable_retry.handlers import operation_handler

class Nothing(BaseModel):
    pass

@operation_handler("lonely-{name}", dependency="nobody", input_model=Nothing)
async def lonely(order, call):
    return None
"""


def start(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str, *modules: str) -> str:
    """Load the app with a file of this text, and return what is printed."""
    (folder / "dependencies.toml").write_text(text)
    settings = AppSettings(dependencies_file=folder / "dependencies.toml", handler_modules=modules)
    monkeypatch.setattr(configuration, "app_settings", lambda: settings)
    monkeypatch.setattr("durable_retry.handlers._handlers", {})
    monkeypatch.setattr(configuration, "_config", None)
    stderr = io.StringIO()
    try:
        configuration.load_app(stderr)
    except (ConfigError, SettingsError, HandlerSetupError):
        return stderr.getvalue()
    return ""


def test_a_good_file_is_there_for_everybody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert start(monkeypatch, tmp_path, GOOD) == ""
    assert configuration.find_dependency("payments") is not None
    assert configuration.find_dependency("nobody") is None


def test_what_may_not_be_meant_is_logged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    endless = "retry.max_attempts = -1\ntimeouts.deadline_seconds = 0\n"
    assert start(monkeypatch, tmp_path, GOOD + endless) == ""
    assert "dependencies.payments.retry.max_attempts: -1 without a deadline" in caplog.text


def test_every_mistake_is_listed_with_its_key_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bad = '[dependencies.payments]\nbase_url = "ftp://x"\n[dependencies.payments.retry]\nmax_attempt = 3\n'
    printed = start(monkeypatch, tmp_path, bad)
    assert f"{tmp_path / 'dependencies.toml'} cannot be used:" in printed
    assert "dependencies.payments.base_url" in printed
    assert "dependencies.payments.retry.max_attempt" in printed


def test_an_attempt_that_cannot_fit_the_function_timeout_is_reported_with_the_sum(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    printed = start(monkeypatch, tmp_path, GOOD + "timeouts = { attempt_seconds = 295 }\n")
    assert "305 s" in printed
    assert "functionTimeout" in printed


def test_a_file_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = AppSettings(dependencies_file=tmp_path / "missing.toml", handler_modules=())
    monkeypatch.setattr(configuration, "app_settings", lambda: settings)
    with pytest.raises(SettingsError, match=r"missing\.toml"):
        configuration.load_app(io.StringIO())


def test_a_wrong_alert_threshold_stops_the_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ALERT_DEAD_LETTERS", "many")
    maintenance_settings.cache_clear()
    assert "ALERT_DEAD_LETTERS: must be a number" in start(monkeypatch, tmp_path, GOOD)


def test_a_handler_module_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "no_such_module" in start(monkeypatch, tmp_path, GOOD, "no_such_module")


def test_a_handler_of_an_unknown_dependency_does_not_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "lonely_handlers.py").write_text(HANDLER.replace("{name}", "1"))
    monkeypatch.syspath_prepend(tmp_path)
    printed = start(monkeypatch, tmp_path, GOOD, "lonely_handlers")
    assert "in lonely_handlers" in printed
    assert f"'nobody', which {tmp_path / 'dependencies.toml'} lacks" in printed


def test_another_configuration_can_stand_in_for_a_while() -> None:
    with configuration.using(Config({})):
        assert configuration.find_dependency("payments") is None
