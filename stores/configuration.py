"""The app's dependencies, read once per process from the file that the settings name."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from engine.config import Config, ConfigError, parse_config
from engine.dependency import Dependency
from engine.problem import Problem
from stores.handler_registry import HandlerSetupError, load_handlers, registered_handlers
from stores.setting_catalogue import DEPENDENCIES_FILE, STRICT_TYPING
from stores.settings import AppSettings, SettingsError, app_settings, function_timeout_seconds
from stores.storage_account import check_storage_account
from stores.upkeep_settings import upkeep_settings

_config: Config | None = None


def load_app(stderr: TextIO | None = None) -> None:
    """Read settings, dependencies and handlers; called once, while the app loads.

    Args:
        stderr: Where mistakes are listed, one a line; None means the process's own.

    Raises:
        ConfigError: `dependencies.toml` has mistakes.
        SettingsError: App settings or host.json have.
        HandlerSetupError: A handler has.
    """
    harden_runtime()
    global _config  # noqa: PLW0603 - the process's one configuration, set while the app loads
    try:
        check_storage_account(os.environ)
        _config = read_dependencies(app_settings())
        load_handlers(app_settings().handler_modules)
        _check_handlers(_config)
        upkeep_settings()  # read here, so that a mistake in them stops the start too
    except (ConfigError, SettingsError, HandlerSetupError) as error:
        print(f"Durable Retry does not start.\n{error}", file=stderr or sys.stderr)
        raise


def harden_runtime() -> None:
    """Switch off two habits of libraries that a service for strangers cannot have."""
    # The Durable codec makes an object with the keys "__class__", "__module__" and "__data__" an instance of
    # that class, wherever it stands in what a caller or a dependency sent.
    os.environ.setdefault(STRICT_TYPING.name, STRICT_TYPING.default)
    # httpx logs whole URLs, and a query can hold what nobody else should read.
    logging.getLogger("httpx").setLevel(logging.WARNING)


def read_dependencies(settings: AppSettings) -> Config:
    """Read and check the file of dependencies.

    Raises:
        ConfigError: With every mistake in it.
        SettingsError: There is no such file.
    """
    try:
        text = settings.dependencies_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = Problem(DEPENDENCIES_FILE.name, f"cannot read {settings.dependencies_file}: {error}")
        raise SettingsError((problem,)) from error
    return parse_config(text, os.environ, function_timeout_seconds=function_timeout_seconds())


def dependencies() -> Config:
    """Return the dependencies of this process.

    Raises:
        RuntimeError: `load_app` has not run.
    """
    if _config is None:
        raise RuntimeError("load_app() comes first")
    return _config


def find_dependency(name: str) -> Dependency | None:
    """Return a dependency, or None when the file has none of that name."""
    return dependencies().dependencies.get(name)


@contextmanager
def using(config: Config) -> Iterator[None]:
    """Let the process use other dependencies for a while; for tests and benchmarks."""
    global _config  # noqa: PLW0603 - see load_app
    previous = _config
    _config = config
    try:
        yield
    finally:
        _config = previous


def _check_handlers(config: Config) -> None:
    for handler in registered_handlers():
        if handler.dependency not in config.dependencies:
            raise HandlerSetupError(
                f"handler {handler.name!r} names dependency {handler.dependency!r}, "
                f"which dependencies.toml does not have"
            )
