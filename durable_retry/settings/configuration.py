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
from durable_retry.engine.config import Config, ConfigError, key_path, parse_config
from durable_retry.engine.dependency import Dependency
from durable_retry.handlers import HandlerSetupError, load_handlers, registered_handlers
from durable_retry.settings.catalogue import (
    ALERT_WEBHOOK,
    DEPENDENCIES_FILE,
    HANDLERS,
    INLINE_RESULT_BYTES,
    MAX_BATCH_BYTES,
    MAX_BODY_BYTES,
    READ_LIMIT_BYTES,
    SCRIPT_ROOT,
    STORE_LIMIT_BYTES,
    TENANT_HEADER,
    TRACE_URL,
)
from durable_retry.settings.maintenance import MaintenanceSettings, maintenance_settings
from durable_retry.settings.setting import SettingsError

_log = logging.getLogger(__name__)

HOST_JSON: Final = "host.json"


def find_app_root(environ: Mapping[str, str], package: Path, current: Path) -> Path:
    """Return the folder of host.json and `function_app.py`.

    Args:
        environ: The host names the folder.
        package: Folder of this package; the app around it when it was not installed from a wheel.
        current: The current folder, in which hosts start the worker.
    """
    named = SCRIPT_ROOT.get(environ)
    for folder in (package.parent, *([Path(named)] if named else []), current):
        if (folder / HOST_JSON).is_file():
            return folder
    return current


APP_ROOT: Final = find_app_root(os.environ, Path(__file__).parents[1], Path.cwd())

_TIMEOUT_FORM: Final = re.compile(r"(?:(\d+)\.)?(\d{1,2}):(\d{2}):(\d{2})")
"""A .NET TimeSpan, `[days.]hours:minutes:seconds`."""

_REFERENCE: Final = re.compile(r"%([^%]+)%")
_HUB_NAME_OVER_HOST_JSON: Final = "AzureFunctionsJobHost__extensions__durableTask__hubName"

_DEFAULT_FUNCTION_TIMEOUT_SECONDS: Final = 300.0
"""Default of the Consumption plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What the app's own code chose in `durable_retry.register`; see there.

    Attributes:
        route_prefix: Path of the routes below the host's prefix, without slashes at its ends; "" for none.
        function_prefix: Begins the names of all functions, also those that histories hold; "" for none.
        dependencies_file: Used when `DEPENDENCIES_FILE` is not set; None means the default of that setting.
        handlers: Modules with handlers, before those of `HANDLERS`.
        sources: Names of the sources; None means those that have their settings.
    """

    route_prefix: str = ""
    function_prefix: str = ""
    dependencies_file: str | Path | None = None
    handlers: tuple[str, ...] = ()
    sources: frozenset[str] | None = None

    def wants(self, source: str) -> bool:
        """Whether a source is to be registered when it has its settings."""
        return self.sources is None or source in self.sources


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSettings:
    """The app's own settings.

    Attributes:
        registration: What the app's code chose.
        dependencies_file: Path of `dependencies.toml`.
        max_body_bytes: The largest body of a request or message, and the largest item of a batch.
        max_batch_bytes: The largest body of a batch.
        read_limit_bytes: Maximum read of a dependency's response body.
        store_limit_bytes: Maximum of a response body stored in a result.
        inline_result_bytes: Maximum of a result that histories carry; a larger one is stored beside them.
        tenant_header: Request header that names the caller's tenant, such as `X-MS-CLIENT-PRINCIPAL-ID` from
            App Service authentication; keys of different tenants are separate. None: there is one tenant.
        trace_url: Where a trace is looked at, with `{trace_id}` in it; None: there is no link.
        handler_modules: Modules that register handlers when they are imported.
    """

    registration: Registration = Registration()
    dependencies_file: Path
    max_body_bytes: int = int(MAX_BODY_BYTES.default)
    max_batch_bytes: int = int(MAX_BATCH_BYTES.default)
    read_limit_bytes: int = int(READ_LIMIT_BYTES.default)
    store_limit_bytes: int = int(STORE_LIMIT_BYTES.default)
    inline_result_bytes: int = int(INLINE_RESULT_BYTES.default)
    tenant_header: str | None = None
    trace_url: str | None = None
    handler_modules: tuple[str, ...] = ()


def read_settings(environ: Mapping[str, str], registration: Registration = Registration()) -> AppSettings:
    """Read the app settings.

    Args:
        environ: The process's environment variables.
        registration: What the app's code chose; a setting that is set wins.

    Raises:
        SettingsError: Lists every setting with an invalid value.
    """
    problems: list[Problem] = []
    handlers = (name.strip() for name in HANDLERS.get(environ).split(","))
    settings = AppSettings(
        registration=registration,
        dependencies_file=_dependencies_file(environ, registration),
        max_body_bytes=MAX_BODY_BYTES.read(environ, problems),
        max_batch_bytes=MAX_BATCH_BYTES.read(environ, problems),
        read_limit_bytes=READ_LIMIT_BYTES.read(environ, problems),
        store_limit_bytes=STORE_LIMIT_BYTES.read(environ, problems),
        inline_result_bytes=INLINE_RESULT_BYTES.read(environ, problems),
        tenant_header=TENANT_HEADER.get(environ) or None,
        trace_url=_trace_url(environ, problems),
        handler_modules=tuple(dict.fromkeys((*registration.handlers, *filter(None, handlers)))),
    )
    if problems:
        raise SettingsError(tuple(problems))
    return settings


def _dependencies_file(environ: Mapping[str, str], registration: Registration) -> Path:
    named = environ.get(DEPENDENCIES_FILE.name) or registration.dependencies_file
    return APP_ROOT / (named or DEPENDENCIES_FILE.default)


def _trace_url(environ: Mapping[str, str], problems: list[Problem]) -> str | None:
    url = TRACE_URL.get(environ)
    if not url:
        return None
    if not url.startswith(("https://", "http://")) or "{trace_id}" not in url:
        problems.append(
            Problem(TRACE_URL.name, f"must be an http(s) URL with {{trace_id}} in it, not {url!r}")
        )
    return url


@cache
def app_settings() -> AppSettings:
    """Return this process's settings, read once.

    Raises:
        SettingsError: See `read_settings`.
    """
    return read_settings(os.environ, _registration)


_registration = Registration()


def use_registration(registration: Registration) -> None:
    """Keep what the app's code chose; called once, while the app loads."""
    global _registration  # noqa: PLW0603 - the process's one app
    _registration = registration
    app_settings.cache_clear()


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

    Args:
        environ: Can override or complete (`%NAME%`) the hub's name in host.json; None means the process's
            own.
        host_json: Path of host.json.
    """
    values = os.environ if environ is None else environ
    hub = values.get(_HUB_NAME_OVER_HOST_JSON) or _hub_name(host_json)
    named = _REFERENCE.sub(lambda match: values.get(match[1], ""), hub)
    return (f"{named.lower()}-", "azure-webjobs-")


@cache
def _hub_name(host_json: Path) -> str:
    durable_task = _host_settings(host_json).get("extensions", {}).get("durableTask", {})
    return str(durable_task.get("hubName", "TestHubName"))


def _host_settings(host_json: Path) -> dict[str, Any]:
    settings = json.loads(host_json.read_text(encoding="utf-8"))
    return settings if isinstance(settings, dict) else {}


_config: Config | None = None


def load_app(stderr: TextIO | None = None) -> None:
    """Read settings, dependencies and handlers; called once, while the app loads.

    Args:
        stderr: Mistakes are printed here, one per line; None means the process's own.

    Raises:
        ConfigError: `dependencies.toml` is invalid.
        SettingsError: App settings or host.json are invalid.
        HandlerSetupError: A handler is invalid.
    """
    global _config  # noqa: PLW0603 - the process's one configuration, set while the app loads
    with printing_mistakes(stderr):
        _config = read_dependencies(app_settings().dependencies_file)
        load_handlers(app_settings().handler_modules)
        _check_handlers(_config)
        for warning in _config.warnings:
            _log.warning("%s: %s: %s", DEPENDENCIES_FILE.name, key_path(warning.pointer), warning.detail)
        _check_alerts(maintenance_settings(), _config)


@contextmanager
def printing_mistakes(stderr: TextIO | None = None) -> Iterator[None]:
    """Print the mistakes that stop the app's start: a host shows them, and hides most of a traceback.

    Args:
        stderr: Where to; None means the process's own.
    """
    try:
        yield
    except (ConfigError, SettingsError, HandlerSetupError) as error:
        lines = error.lines if isinstance(error, SettingsError) else str(error)
        print(f"Durable Retry does not start.\n{lines}", file=stderr or sys.stderr)
        raise


def mistakes_in_dependencies() -> tuple[Problem, ...]:
    """Return the mistakes in the file of dependencies, to list them beside those of app settings."""
    try:
        read_dependencies(_dependencies_file(os.environ, _registration))
    except ConfigError as error:
        return _listed(error)
    except SettingsError as error:
        return error.problems
    return ()


def _listed(error: ConfigError) -> tuple[Problem, ...]:
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
        problem = Problem(DEPENDENCIES_FILE.name, f"cannot read {file}: {error}")
        raise SettingsError((*wrong, problem)) from error
    try:
        config = parse_config(text, os.environ, function_timeout_seconds=timeout, file_name=_shown(file))
    except ConfigError as error:
        if not wrong:
            raise
        raise SettingsError((*wrong, *_listed(error))) from error
    if wrong:
        raise SettingsError(wrong)
    return config


def _function_timeout() -> tuple[float | None, tuple[Problem, ...]]:
    """Return host.json's time limit of one invocation, and what is wrong with it."""
    try:
        return function_timeout_seconds(), ()
    except SettingsError as error:
        return None, error.problems


def _shown(file: Path) -> str:
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


def _check_alerts(settings: MaintenanceSettings, config: Config) -> None:
    if settings.webhook is not None and settings.webhook.dependency not in config.dependencies:
        name = settings.webhook.dependency
        file = _shown(app_settings().dependencies_file)
        detail = f"names the dependency {name!r}, which {file} lacks: add [dependencies.{name}] there"
        raise SettingsError((Problem(ALERT_WEBHOOK.name, detail),))


def _check_handlers(config: Config) -> None:
    file = _shown(app_settings().dependencies_file)
    mistakes = [
        f"handler {handler.name!r} in {handler.function.__module__} names the dependency "
        f"{handler.dependency!r}, which {file} lacks: add [dependencies.{handler.dependency}] there, "
        "or do not load that module"
        for handler in registered_handlers()
        if handler.dependency not in config.dependencies
    ]
    if mistakes:
        raise HandlerSetupError("\n".join(mistakes))
