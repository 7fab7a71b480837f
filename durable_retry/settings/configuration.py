"""The process's configuration: app settings, host.json's limits, `dependencies.toml`, handlers."""

import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final, TextIO

from durable_retry.engine.base.masking import Masking
from durable_retry.engine.base.validation import Problem
from durable_retry.engine.config.dependencies_file import Config, ConfigError, key_path, parse_config
from durable_retry.engine.config.dependency import Dependency
from durable_retry.engine.operations.submission import Targets
from durable_retry.engine.retry.policy import timeouts_problems
from durable_retry.handler_registry import Handler, HandlerSetupError, load_handlers, registered_handlers
from durable_retry.settings.alerts import AlertSettings, alert_settings
from durable_retry.settings.app import AppSettings
from durable_retry.settings.group import SettingsError

_log = logging.getLogger(__name__)

_DEPENDENCIES_FILE: Final = AppSettings.name_of("dependencies_file")

HOST_JSON: Final = "host.json"


def find_app_root(environ: Mapping[str, str], package: Path, current: Path) -> Path:
    """Return the folder of host.json and `function_app.py`: the host names it, or it is around the package.

    A package from a wheel has none around it; hosts start the worker in the current folder then.
    """
    named = environ.get(AppSettings.name_of("script_root"))
    for folder in (package.parent, *([Path(named)] if named else []), current):
        if (folder / HOST_JSON).is_file():
            return folder
    return current


APP_ROOT: Final = find_app_root(os.environ, Path(__file__).parents[1], Path.cwd())

_TIMEOUT_FORM: Final = re.compile(r"(?:(\d+)\.)?(\d{1,2}):(\d{2}):(\d{2})")
"""A .NET TimeSpan, `[days.]hours:minutes:seconds`."""

_REFERENCE: Final = re.compile(r"%([^%]+)%")
_OVER_DURABLE_TASK: Final = "AzureFunctionsJobHost__extensions__durableTask__"
"""An environment variable of this beginning overrides the key of host.json that follows."""
_WINDOW: Final = "entityMessageReorderWindowInMinutes"

_DEFAULT_FUNCTION_TIMEOUT_SECONDS: Final = 300.0
"""Default of the Consumption plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What the app's own code chose in `durable_retry.register`; see there."""

    # Path of the routes below the host's prefix, without slashes at its ends; "" for none.
    route_prefix: str = ""
    # Begins the names of all functions, also those that histories hold; "" for none.
    function_prefix: str = ""
    # Used when `DEPENDENCIES_FILE` is not set; None means the default of that setting.
    dependencies_file: str | Path | None = None
    handlers: tuple[str, ...] = ()  # modules with handlers, before those of `HANDLERS`
    sources: frozenset[str] | None = None  # names of the sources; None means those that have their settings
    # Whether the app has the console: lists, search, overview, metrics over time, alerts, bulk actions and
    # the dashboard.
    console: bool = True

    def wants(self, source: str) -> bool:
        """Whether a source is to be registered when it has its settings."""
        return self.sources is None or source in self.sources


@cache
def app_settings() -> AppSettings:
    """Return this process's settings, read once.

    Raises:
        SettingsError: Lists every setting with an invalid value.
    """
    return AppSettings.read(os.environ)


_registration = Registration()


def use_registration(registration: Registration) -> None:
    """Keep what the app's code chose; called once, while the app loads."""
    global _registration  # noqa: PLW0603 - the process's one app
    _registration = registration


def registration() -> Registration:
    """Return what the app's code chose."""
    return _registration


def dependencies_path(settings: AppSettings) -> Path:
    """Return the file of dependencies: that of the setting, else the app's own choice, else the default."""
    is_set = "dependencies_file" in settings.model_fields_set
    return _dependencies_path(settings.dependencies_file if is_set else "")


def _dependencies_path(named: str) -> Path:
    return APP_ROOT / (named or _registration.dependencies_file or AppSettings().dependencies_file)


def handler_modules(settings: AppSettings) -> tuple[str, ...]:
    """Return the modules that register handlers when they are imported: the app's own, then the setting's."""
    return tuple(dict.fromkeys((*_registration.handlers, *settings.handler_modules)))


def function_name(name: str) -> str:
    """Return the name under which a function of `engine.base.names` is registered, started and called."""
    return _registration.function_prefix + name


def function_timeout_seconds(host_json: Path = APP_ROOT / HOST_JSON) -> float | None:
    """Return host.json's time limit of one invocation; None when it sets none (-1).

    Raises:
        SettingsError: `functionTimeout` is not a time span.
    """
    text = _host_settings(host_json).get("functionTimeout", "")
    if text == "":
        return _DEFAULT_FUNCTION_TIMEOUT_SECONDS
    if text == "-1":
        return None
    parts = _TIMEOUT_FORM.fullmatch(str(text))
    if parts is None:
        raise SettingsError((Problem("host.json/functionTimeout", f"must look like 00:05:00, not {text!r}"),))
    days, hours, minutes, seconds = (int(part or 0) for part in parts.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds()


def api_path(host_json: Path = APP_ROOT / HOST_JSON) -> str:
    """Return the path of the API: host.json's route prefix, then that of the registration."""
    http = _host_settings(host_json).get("extensions", {}).get("http", {})
    prefixes = (str(http.get("routePrefix", "api")).strip("/"), _registration.route_prefix)
    return "".join(f"/{prefix}" for prefix in prefixes if prefix)


@cache
def encodes_queue_messages(host_json: Path = APP_ROOT / HOST_JSON) -> bool:
    """Return whether queue messages are base64, the host's default."""
    queues = _host_settings(host_json).get("extensions", {}).get("queues", {})
    return str(queues.get("messageEncoding", "base64")).lower() != "none"


def platform_queue_prefixes(
    environ: Mapping[str, str] | None = None, host_json: Path = APP_ROOT / HOST_JSON
) -> tuple[str, ...]:
    """Return the name prefixes of the queues that the task hub and the host own in the same account.

    The environment can override or complete (`%NAME%`) the hub's name in host.json.
    """
    values = os.environ if environ is None else environ
    hub = values.get(f"{_OVER_DURABLE_TASK}hubName") or _hub_name(host_json)
    named = _REFERENCE.sub(lambda match: values.get(match[1], ""), hub)
    return (f"{named.lower()}-", "azure-webjobs-")


@cache
def _hub_name(host_json: Path) -> str:
    durable_task = _host_settings(host_json).get("extensions", {}).get("durableTask", {})
    return str(durable_task.get("hubName", "TestHubName"))


def check_reorder_window(
    environ: Mapping[str, str] | None = None, host_json: Path = APP_ROOT / HOST_JSON
) -> None:
    """Refuse a host.json under which Azure Storage drops every entity call of a Python orchestrator.

    Why: docs/decisions/entity-messages.md.

    Raises:
        SettingsError: `entityMessageReorderWindowInMinutes` is not 0.
    """
    values = os.environ if environ is None else environ
    durable_task = _host_settings(host_json).get("extensions", {}).get("durableTask", {})
    minutes = values.get(f"{_OVER_DURABLE_TASK}{_WINDOW}") or durable_task.get(_WINDOW)
    if str(minutes) != "0":
        detail = (
            "must be 0: with another value Azure Storage drops entity calls, and no operation would begin"
        )
        raise SettingsError((Problem(f"host.json/extensions/durableTask/{_WINDOW}", detail),))


def _host_settings(host_json: Path) -> dict[str, Any]:
    settings = json.loads(host_json.read_text(encoding="utf-8"))
    return settings if isinstance(settings, dict) else {}


_config: Config | None = None


def load_app(stderr: TextIO | None = None) -> None:
    """Read settings, dependencies and handlers; called once, while the app loads.

    Mistakes are printed to `stderr`, one per line.

    Raises:
        ConfigError: `dependencies.toml` is invalid.
        SettingsError: App settings or host.json are invalid.
        HandlerSetupError: A handler is invalid.
    """
    global _config  # noqa: PLW0603 - the process's one configuration, set while the app loads
    with printing_mistakes(stderr):
        _config = read_dependencies(dependencies_path(app_settings()))
        load_handlers(handler_modules(app_settings()))
        _check_handlers(_config)
        for warning in _config.warnings:
            _log.warning("%s: %s: %s", _DEPENDENCIES_FILE, key_path(warning.pointer), warning.detail)
        _check_alerts(alert_settings(), _config)


@contextmanager
def printing_mistakes(stderr: TextIO | None = None) -> Iterator[None]:
    """Print the mistakes that stop the app's start: a host shows them, and hides most of a traceback."""
    try:
        yield
    except (ConfigError, SettingsError, HandlerSetupError) as error:
        lines = error.lines if isinstance(error, SettingsError) else str(error)
        print(f"Durable Retry does not start.\n{lines}", file=stderr or sys.stderr)
        raise


def mistakes_in_dependencies() -> tuple[Problem, ...]:
    """Return the mistakes in the file of dependencies, to list them beside those of app settings."""
    try:
        read_dependencies(_dependencies_path(os.environ.get(_DEPENDENCIES_FILE, "")))
    except ConfigError as error:
        return _problems_of_file(error)
    except SettingsError as error:
        return error.problems
    return ()


def _problems_of_file(error: ConfigError) -> tuple[Problem, ...]:
    """Return the mistakes in the file of dependencies as they are listed among others."""
    return tuple(
        Problem(f"{error.file_name}: {key_path(problem.pointer)}", problem.detail)
        for problem in error.problems
    )


def read_dependencies(file: Path) -> Config:
    """Read and check the file of dependencies.

    Raises:
        ConfigError: Lists every mistake in it.
        SettingsError: The file cannot be read; or host.json is wrong, beside every mistake in the file.
    """
    timeout, wrong = _function_timeout()
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = Problem(_DEPENDENCIES_FILE, f"cannot read {file}: {error}")
        raise SettingsError((*wrong, problem)) from error
    try:
        config = parse_config(text, os.environ, function_timeout_seconds=timeout, file_name=_shown_path(file))
    except ConfigError as error:
        if not wrong:
            raise
        raise SettingsError((*wrong, *_problems_of_file(error))) from error
    if wrong:
        raise SettingsError(wrong)
    return config


def _function_timeout() -> tuple[float | None, tuple[Problem, ...]]:
    """Return host.json's time limit of one invocation, and what is wrong with it."""
    try:
        return function_timeout_seconds(), ()
    except SettingsError as error:
        return None, error.problems


def _shown_path(file: Path) -> str:
    """Return a path below the app's folder by its part below, another one whole."""
    return str(file.relative_to(APP_ROOT) if file.is_relative_to(APP_ROOT) else file)


def dependencies() -> Config:
    """Return the dependencies of this process.

    Raises:
        RuntimeError: `load_app` has not run.
    """
    if _config is None:
        raise RuntimeError("load_app() comes first")
    return _config


def find_dependency(name: str) -> Dependency | None:
    """Return a dependency by name, or None."""
    return dependencies().dependencies.get(name)


def targets() -> Targets:
    """Return what the operations of this process may name."""
    return Targets(dependencies().dependencies, registered_handlers(), platform_queue_prefixes())


def masking_of(dependency: str | None) -> Masking:
    """Return the rules for what people see of a dependency; without one, or an unknown one, the defaults."""
    found = None if dependency is None else find_dependency(dependency)
    return dependencies().masking if found is None else found.masking


@contextmanager
def using(config: Config) -> Iterator[None]:
    """Use other dependencies inside the block; for tests and benchmarks."""
    global _config  # noqa: PLW0603 - see load_app
    previous = _config
    _config = config
    try:
        yield
    finally:
        _config = previous


def _check_alerts(settings: AlertSettings, config: Config) -> None:
    webhook = settings.alert_webhook
    if webhook is None:
        return
    name, file = webhook.dependency, _shown_path(dependencies_path(app_settings()))
    found = config.dependencies.get(name)
    if found is None or not found.base_url:
        lack = f"{file} lacks" if found is None else f"has no base_url in {file}"
        key = f"[dependencies.{name}]" if found is None else "it"
        detail = f"names the dependency {name!r}, which {lack}: add {key} there"
        raise SettingsError((Problem(AlertSettings.name_of("alert_webhook"), detail),))


def _check_handlers(config: Config) -> None:
    """Check what is known of the app's own functions only when all of it is loaded.

    Raises:
        HandlerSetupError: Lists every mistake.
    """
    mistakes = [
        mistake for handler in registered_handlers().values() for mistake in _mistakes_of(handler, config)
    ]
    if mistakes:
        raise HandlerSetupError("\n".join(mistakes))


def _mistakes_of(handler: Handler, config: Config) -> Iterator[str]:
    dependency = config.dependencies.get(handler.dependency)
    if dependency is None:
        file = _shown_path(dependencies_path(app_settings()))
        yield (
            f"{handler.place} names the dependency {handler.dependency!r}, which {file} lacks: "
            f"add [dependencies.{handler.dependency}] there, or do not load that module"
        )
    elif handler.timeout_seconds is not None:
        timeouts = handler.limits_at(dependency).timeouts
        for _, detail in timeouts_problems(timeouts, function_timeout_seconds()):
            yield f"{handler.place}: timeout: {detail}"
    try:
        _ = handler.signature
    except HandlerSetupError as error:
        yield str(error)
