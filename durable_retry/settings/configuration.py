"""The process's configuration: app settings, host.json's limits, `dependencies.toml`, handlers."""

import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Final

from durable_retry.base.masking import Masking
from durable_retry.base.validation import Problem, pointer_of
from durable_retry.plugins import features_of, hook
from durable_retry.rules.config.dependencies_file import Config, ConfigError, key_path, parse_config
from durable_retry.rules.config.dependency import Dependency, HandlerTarget, Targets
from durable_retry.rules.operations.request import unmet_keys
from durable_retry.runtime.deferred import imported
from durable_retry.settings.app import AppSettings
from durable_retry.settings.group import SettingsError
from durable_retry.settings.mistakes import HOST_JSON, Mistakes
from durable_retry.settings.retention import retention

_log = logging.getLogger(__name__)

_DEPENDENCIES_FILE: Final = AppSettings.name_of("dependencies_file")


def find_app_root(environ: Mapping[str, str], package: Path, current: Path) -> Path:
    """Return the folder of host.json and `function_app.py`: the host names it, or starts the worker there.

    The folder around the package comes last: an app that installs a clone as editable has its own.
    """
    named = environ.get(AppSettings.name_of("script_root"))
    for folder in (*([Path(named)] if named else []), current, package.parent):
        if (folder / HOST_JSON).is_file():
            return folder
    return current


APP_ROOT: Final = find_app_root(os.environ, Path(__file__).parents[1], Path.cwd())

_TIMEOUT_FORM: Final = re.compile(r"(?:(\d+)\.)?(\d{1,2}):(\d{2}):(\d{2})", re.ASCII)
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

    def wants(self, source: str) -> bool:
        """Whether a source is to be registered when it has its settings."""
        return self.sources is None or source in self.sources


@cache
def app_settings() -> AppSettings:
    """Return this process's settings, read once; see `SettingsGroup.read`."""
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
    chosen = None if is_set else _registration.dependencies_file
    return APP_ROOT / (chosen or settings.dependencies_file)


def function_name(name: str) -> str:
    """Return the name under which a function of `base.names` is registered, started and called."""
    return _registration.function_prefix + name


def function_timeout_seconds(host_json: Path = APP_ROOT / HOST_JSON) -> float | None:
    """Return host.json's time limit of one invocation; None when it sets none (-1).

    Raises:
        SettingsError: `functionTimeout` is not a time span.
    """
    text = _host_settings(host_json).get("functionTimeout", "")
    if text == "":
        return _DEFAULT_FUNCTION_TIMEOUT_SECONDS
    return None if text == "-1" else _seconds_of(text, "functionTimeout")


def host_time_span(*path: str, default: str, host_json: Path = APP_ROOT / HOST_JSON) -> float:
    """Return a time span of host.json's `extensions`, in seconds.

    Raises:
        SettingsError: It is not a time span.
    """
    return _seconds_of(host_extension(*path, default=default, host_json=host_json), path[-1])


def _seconds_of(text: object, name: str) -> float:
    parts = _TIMEOUT_FORM.fullmatch(str(text))
    if parts is None:
        raise SettingsError((Problem(f"host.json/{name}", f"must look like 00:05:00, not {text!r}"),))
    days, hours, minutes, seconds = (int(part or 0) for part in parts.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds()


def api_path(host_json: Path = APP_ROOT / HOST_JSON) -> str:
    """Return the path of the API: host.json's route prefix, then that of the registration."""
    host_prefix = host_extension("http", "routePrefix", default="api", host_json=host_json)
    prefixes = (str(host_prefix).strip("/"), _registration.route_prefix)
    return "".join(f"/{prefix}" for prefix in prefixes if prefix)


@cache
def encodes_queue_messages(host_json: Path = APP_ROOT / HOST_JSON) -> bool:
    """Return whether queue messages are base64, the host's default."""
    encoding = host_extension("queues", "messageEncoding", default="base64", host_json=host_json)
    return str(encoding).lower() != "none"


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
    return str(host_extension("durableTask", "hubName", default="TestHubName", host_json=host_json))


def check_host_json(environ: Mapping[str, str] | None = None, host_json: Path = APP_ROOT / HOST_JSON) -> None:
    """Refuse a host.json that cannot be read, or under which Azure Storage drops every entity call of Python.

    Why it does: docs/decisions/entity-messages.md.

    Raises:
        SettingsError: It is missing or not JSON, or `entityMessageReorderWindowInMinutes` is not 0.
    """
    try:
        json.loads(host_json.read_text(encoding="utf-8"))
    except FileNotFoundError:
        detail = f"is missing in {host_json.parent}: start in the app's folder, or set AzureWebJobsScriptRoot"
        raise SettingsError((Problem(HOST_JSON, detail),)) from None
    except (OSError, ValueError) as error:
        raise SettingsError((Problem(HOST_JSON, f"cannot be read as JSON: {error}"),)) from None
    values = os.environ if environ is None else environ
    minutes = values.get(f"{_OVER_DURABLE_TASK}{_WINDOW}")
    minutes = minutes or host_extension("durableTask", _WINDOW, default=None, host_json=host_json)
    if str(minutes) != "0":
        detail = (
            "must be 0: with another value Azure Storage drops entity calls, and no operation would begin"
        )
        raise SettingsError((Problem(f"host.json/extensions/durableTask/{_WINDOW}", detail),))


def host_extension(*path: str, default: Any, host_json: Path = APP_ROOT / HOST_JSON) -> Any:
    """Return a setting of host.json's `extensions`; the default where it says nothing."""
    *tables, name = path
    settings = _host_settings(host_json).get("extensions", {})
    for table in tables:
        settings = settings.get(table, {})
    return settings.get(name, default)


def _host_settings(host_json: Path) -> dict[str, Any]:
    """Return what host.json says; nothing where it cannot be read, which `check_host_json` refuses."""
    try:
        settings = json.loads(host_json.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return settings if isinstance(settings, dict) else {}


_FIRST_DEPENDENCY: Final = """\
    [defaults.retry]
    preset = "standard"
    [dependencies.payments]
    base_url = "https://payments.example.com"
"""

_config: Config | None = None


def load_app(mistakes: Mistakes) -> None:
    """Read settings, dependencies and handlers; called once, while the app loads.

    Args:
        mistakes: Gathers what is wrong; then there may be no dependencies.
    """
    global _config  # noqa: PLW0603 - the process's one configuration, set while the app loads
    # Another setting with a mistake does not make the default file the one that is checked.
    settings = AppSettings.read({_DEPENDENCIES_FILE: os.environ.get(_DEPENDENCIES_FILE, "")})
    with mistakes.gathered():
        settings = app_settings()
    file = dependencies_path(settings)
    config = read_dependencies(file, mistakes)
    if config is not None:
        _config = config
        for warning in config.warnings:
            _log.warning("%s: %s: %s", _DEPENDENCIES_FILE, key_path(warning.pointer), warning.detail)
    if module := hook("handlers"):
        imported(f"{module}.loading:load_handlers")(file, config, mistakes)


def _settings_of_process(_text: str) -> Mapping[str, str]:
    return os.environ


_settings_for: Callable[[str], Mapping[str, str]] = _settings_of_process


def read_settings_by(settings_for: Callable[[str], Mapping[str, str]]) -> None:
    """Take the settings that a file of dependencies names from elsewhere; for tests.

    Args:
        settings_for: Returns them for the file's text.
    """
    global _settings_for  # noqa: PLW0603 - a process of tests
    _settings_for = settings_for


def read_dependencies(file: Path, mistakes: Mistakes) -> Config | None:
    """Read and check the file of dependencies; with mistakes, what other checks can use, or None."""
    timeout = config = None
    with mistakes.gathered():
        timeout = function_timeout_seconds()
    with mistakes.gathered():
        try:
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            detail = f"there is no {file}: make it, beginning with\n{_FIRST_DEPENDENCY.rstrip()}"
            raise SettingsError((Problem(_DEPENDENCIES_FILE, detail),)) from None
        except (OSError, UnicodeDecodeError) as error:
            problem = Problem(_DEPENDENCIES_FILE, f"cannot read {file}: {error}")
            raise SettingsError((problem,)) from error
        file_name, settings = shown_path(file), _settings_for(text)
        try:
            config = parse_config(
                text,
                settings,
                function_timeout_seconds=timeout,
                file_name=file_name,
                problems_here=_problems_here,
            )
        except ConfigError as error:
            config = error.config
            raise
    return config


def _problems_here(config: Config) -> Iterator[Problem]:
    """List what is wrong with keys of features where the app runs."""
    names_files = _settings_for is _settings_of_process  # a placeholder of a test names none
    for name, dependency in config.dependencies.items():
        problems: Iterable[Problem] = unmet_keys(dependency, _targets_in(config))
        checks = [feature.check for feature in features_of(dependency.of_features) if names_files]
        for check in filter(None, checks):
            problems = chain(problems, imported(check)(dependency))
        yield from (problem.below(pointer_of("dependencies", name)) for problem in problems)


def shown_path(file: Path) -> str:
    """Return a path below the app's folder by its part below, another one whole."""
    return str(file.relative_to(APP_ROOT) if file.is_relative_to(APP_ROOT) else file)


def dependencies() -> Config:
    """Return the dependencies of this process; RuntimeError before `load_app` has run."""
    if _config is None:
        raise RuntimeError("load_app() comes first")
    return _config


def has_dependencies() -> bool:
    """Whether `load_app` found dependencies, which may have mistakes until the app has started."""
    return _config is not None


def find_dependency(name: str) -> Dependency | None:
    config = dependencies()
    return config.dependencies.get(name) or config.earlier_names.get(name)


def present_name(name: str) -> str:
    """Return the name that a dependency has by now; one that is not known stays as it is."""
    dependency = find_dependency(name)
    return name if dependency is None else dependency.name


def registered_handlers() -> Mapping[str, HandlerTarget]:
    """Return the handlers of the app, by name."""
    return _handlers()()


@cache
def _handlers() -> Callable[[], Mapping[str, HandlerTarget]]:
    module = hook("handlers")
    handlers: Callable[[], Mapping[str, HandlerTarget]] = dict
    return imported(f"{module}.registry:registered_handlers") if module else handlers


def limits_of(dependency: Dependency, handler: str | None) -> Dependency:
    """Return a dependency with the policy and the time limit that a handler has there, if there is one."""
    target = None if handler is None else registered_handlers().get(handler)
    return dependency if target is None else target.limits_at(dependency)


def targets() -> Targets:
    """Return what the operations of this process may name."""
    return _targets_in(dependencies(), retention().history_for)


def _targets_in(config: Config, history_for: timedelta | None = None) -> Targets:
    return Targets(
        config.dependencies,
        registered_handlers(),
        platform_queue_prefixes(),
        config.earlier_names,
        history_for,
    )


def masking_of(dependency: str | None) -> Masking:
    """Return the rules for what people see of a dependency; without one, or an unknown one, the defaults."""
    configured = None if dependency is None else find_dependency(dependency)
    return dependencies().masking if configured is None else configured.masking


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
