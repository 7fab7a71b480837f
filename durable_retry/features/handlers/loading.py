"""Loads the modules that declare operations, and checks what is known of these when all is loaded."""

import importlib
import os
import traceback
from pathlib import Path

from durable_retry.base.documents import read_toml
from durable_retry.base.validation import InvalidInputError, did_you_mean
from durable_retry.features.handlers.registry import (
    Handler,
    HandlerSetupError,
    check_later_ones,
    registered_handlers,
    taken_mistakes,
)
from durable_retry.features.handlers.settings import HandlerSettings
from durable_retry.plugins import why_absent
from durable_retry.rules.config.dependencies_file import Config
from durable_retry.rules.operations.request import unmet_keys
from durable_retry.rules.retry.policy import timeouts_problems
from durable_retry.settings.configuration import (
    APP_ROOT,
    app_settings,
    dependencies,
    dependencies_path,
    function_timeout_seconds,
    registration,
    shown_path,
    targets,
)
from durable_retry.settings.mistakes import Mistakes


def load_handlers(file: Path, config: Config | None, mistakes: Mistakes) -> None:
    """Load and check the handlers of this process; see `Plugin.handlers`."""
    for module in handler_modules():
        _load_module(module, mistakes)
    for wrong in taken_mistakes():
        _add(wrong, mistakes)
    for handler in registered_handlers().values():
        _check(handler, file, config, mistakes)
    if config is not None:
        check_later_ones(_refuse_mistakes)


def handler_modules() -> tuple[str, ...]:
    """Return the modules that declare operations: the app's own, then those of the setting."""
    return tuple(dict.fromkeys((*registration().handlers, *HandlerSettings.read(os.environ).modules)))


def _load_module(module: str, mistakes: Mistakes) -> None:
    try:
        importlib.import_module(module)
    except Exception as error:  # noqa: BLE001 - the module may raise anything
        by_code = module in registration().handlers
        named = "register(handlers)" if by_code else HandlerSettings.name_of("handlers")
        detail = f"cannot import {module}: {type(error).__name__}: {error}"
        mistakes.add(_place_of_error(error) or mistakes.place_of(named), detail)


def _place_of_error(error: Exception) -> str | None:
    """Return file and line of the code that raised while a module was imported; None when it is missing."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{error.filename}:{error.lineno}"
    ours = {__file__, importlib.__file__}
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in ours and not frame.filename.startswith("<frozen")
    ]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None


def _add(wrong: HandlerSetupError, mistakes: Mistakes) -> None:
    for detail in wrong.details:
        mistakes.add(wrong.place, detail)


def _refuse_mistakes(handler: Handler | None, mistake: HandlerSetupError | None) -> None:
    """Refuse a function that is declared after `register`, as one before it is refused.

    Raises:
        StartError: It has mistakes.
    """
    mistakes = Mistakes(APP_ROOT)
    if mistake is not None:
        _add(mistake, mistakes)
    if handler is not None:
        _check(handler, dependencies_path(app_settings()), dependencies(), mistakes)
    mistakes.refuse()


def _check(handler: Handler, file: Path, config: Config | None, mistakes: Mistakes) -> None:
    names = _names_in(file) if config is None else config.dependencies.keys()
    if names is not None and handler.dependency not in names:
        detail = (
            f"names the dependency {handler.dependency!r}, which {shown_path(file)} lacks: "
            f"add [dependencies.{handler.dependency}] there, or do not load that module"
            + did_you_mean(handler.dependency, list(names))
        )
        mistakes.add(handler.place, detail)
    elif config is not None:
        _check_at_dependency(handler, config, mistakes)
    try:
        handler.check_functions()
    except HandlerSetupError as error:
        _add(error, mistakes)


def _check_at_dependency(handler: Handler, config: Config, mistakes: Mistakes) -> None:
    for name in handler.of_features:
        if absent := why_absent(name):
            mistakes.add(handler.place, f"{name} {absent}")
    try:
        limits = handler.limits_at(config.dependencies[handler.dependency])
    except InvalidInputError as error:
        mistakes.add(handler.place, str(error))
        return
    if handler.timeout_seconds is not None:
        with mistakes.gathered():
            for _, detail in timeouts_problems(limits.timeouts, function_timeout_seconds()):
                mistakes.add(handler.place, f"timeout: {detail}")
    for problem in unmet_keys(limits, targets()) if handler.of_features else ():
        mistakes.add(handler.place, f"{problem.pointer}: {problem.detail}")


def _names_in(file: Path) -> frozenset[str] | None:
    """Return the names in a file of dependencies that has mistakes; None when they cannot be read."""
    try:
        return frozenset(read_toml(file.read_text(encoding="utf-8"))["dependencies"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
