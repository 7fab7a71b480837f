"""Load the app's configuration: settings, `dependencies.toml`, handlers; once per process."""

import functools
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO

from durabletask import task
from durabletask.internal import orchestrator_service_pb2 as pb
from durabletask.worker import _OrchestrationExecutor

from durable_retry.engine.base.masking import Masking
from durable_retry.engine.base.validation import Problem
from durable_retry.engine.config import Config, ConfigError, key_path, parse_config
from durable_retry.engine.dependency import Dependency
from durable_retry.handlers import HandlerSetupError, load_handlers, registered_handlers
from durable_retry.settings.app import (
    APP_ROOT,
    AppSettings,
    SettingsError,
    app_settings,
    function_timeout_seconds,
)
from durable_retry.settings.callers import caller_settings
from durable_retry.settings.catalogue import ALERT_WEBHOOK, DEPENDENCIES_FILE, STRICT_TYPING
from durable_retry.settings.maintenance import MaintenanceSettings, maintenance_settings
from durable_retry.settings.storage_account import check_storage_account

_log = logging.getLogger(__name__)

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
    harden_runtime()
    global _config  # noqa: PLW0603 - the process's one configuration, set while the app loads
    with printing_mistakes(stderr):
        check_storage_account(os.environ)
        _config = read_dependencies(app_settings())
        load_handlers(app_settings().handler_modules)
        _check_handlers(_config)
        for warning in _config.warnings:
            _log.warning("%s: %s: %s", DEPENDENCIES_FILE.name, key_path(warning.pointer), warning.detail)
        _check_alerts(maintenance_settings(), _config)
        caller_settings()  # validate at start


@contextmanager
def printing_mistakes(stderr: TextIO | None = None) -> Iterator[None]:
    """Print the mistakes that stop the app's start: a host shows them, and hides most of a traceback.

    Args:
        stderr: Where to; None means the process's own.
    """
    try:
        yield
    except (ConfigError, SettingsError, HandlerSetupError) as error:
        print(f"Durable Retry does not start.\n{error}", file=stderr or sys.stderr)
        raise


def harden_runtime() -> None:
    """Switch off two library defaults that are unsafe for untrusted input, and mend one that loses tasks."""
    # By default the Durable codec instantiates the class that a JSON object names with the keys "__class__",
    # "__module__" and "__data__", also in data from callers and dependencies.
    os.environ.setdefault(STRICT_TYPING.name, STRICT_TYPING.default)
    # httpx logs whole URLs, and a query can contain confidential data.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    _keep_tasks_from_answers_of_another_kind()


def _keep_tasks_from_answers_of_another_kind() -> None:
    """Have the SDK's executor leave a task alone when what fires or answers belongs to another kind of task.

    Azure Storage sends the messages of a turn before it stores the turn's history. When that fails and the
    turn, run again, decides otherwise, one number is a timer's in the first run and a call's in the second.
    The platform compares numbers only. The SDK sees that the kinds differ, but has forgotten the task by
    then: its orchestration would wait for ever.
    """
    process = _OrchestrationExecutor.process_event
    if hasattr(process, "__wrapped__"):
        return

    @functools.wraps(process)
    def process_event(executor: Any, ctx: Any, event: pb.HistoryEvent) -> None:
        if not _is_of_another_kind(ctx, event):
            process(executor, ctx, event)

    executors: Any = _OrchestrationExecutor
    executors.process_event = process_event


_ANSWERS: Final = frozenset(
    {
        *("taskCompleted", "taskFailed"),
        *("subOrchestrationInstanceCompleted", "subOrchestrationInstanceFailed"),
    }
)


def _is_of_another_kind(ctx: Any, event: pb.HistoryEvent) -> bool:
    kind = event.WhichOneof("eventType")
    if kind == "timerFired":
        waiting = ctx._pending_tasks.get(event.timerFired.timerId)  # noqa: SLF001 - the SDK has no public way
        return waiting is not None and not isinstance(waiting, task.TimerTask)
    if kind in _ANSWERS:
        number = getattr(event, kind).taskScheduledId
        calls = ctx._entity_task_id_map.values()  # noqa: SLF001 - as above
        is_call_of_entity = any(number == call_number for _, _, call_number in calls)
        return is_call_of_entity or isinstance(ctx._pending_tasks.get(number), task.TimerTask)  # noqa: SLF001 - as above
    return False


def read_dependencies(settings: AppSettings) -> Config:
    """Read and check the file of dependencies.

    Raises:
        ConfigError: Lists every mistake in it.
        SettingsError: The file cannot be read.
    """
    try:
        text = settings.dependencies_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = Problem(DEPENDENCIES_FILE.name, f"cannot read {settings.dependencies_file}: {error}")
        raise SettingsError((problem,)) from error
    return parse_config(
        text,
        os.environ,
        function_timeout_seconds=function_timeout_seconds(),
        file_name=_shown(settings.dependencies_file),
    )


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
    for handler in registered_handlers():
        if handler.dependency not in config.dependencies:
            raise HandlerSetupError(
                f"handler {handler.name!r} in {handler.function.__module__} names the dependency "
                f"{handler.dependency!r}, which {_shown(app_settings().dependencies_file)} lacks: add "
                f"[dependencies.{handler.dependency}] there, or do not load that module"
            )
