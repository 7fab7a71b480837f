"""Adding Durable Retry to a function app: its routes, sources, timers and durable functions.

The durable functions are `orchestrators/`, `activities/` and `entities/` at the top of the repository. A
wheel has them inside this package, apart from folders of an app with the same names: see setup.py.
"""

import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, fields
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

import azure.durable_functions as df
import azure.functions as func
from azure.functions.decorators.function_app import FunctionBuilder
from azure.functions.decorators.function_name import FunctionName
from azure.functions.decorators.http import HttpTrigger

from durable_retry import routing
from durable_retry.base.names import QUEUE_SOURCE
from durable_retry.base.validation import Problem, did_you_mean
from durable_retry.hub.executor_guard import guard_executor
from durable_retry.intake.blueprints import source_blueprints
from durable_retry.plugins import hook, plugins, sources, why_absent
from durable_retry.settings.app import AppSettings
from durable_retry.settings.catalogue import groups_of_plugins
from durable_retry.settings.configuration import (
    APP_ROOT,
    Registration,
    app_settings,
    check_host_json,
    function_name,
    has_dependencies,
    load_app,
    registration,
    use_registration,
)
from durable_retry.settings.group import SettingsError
from durable_retry.settings.intake import intake_settings
from durable_retry.settings.mistakes import Mistakes
from durable_retry.settings.storage_account import check_storage_account
from durable_retry.upkeep import timers

DURABLE_FOLDERS: Final = ("orchestrators", "activities", "entities")

_ROUTE: Final = re.compile(r"[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*")
# The platform keeps names of entities in lower case, and names of functions to 127 characters.
_PREFIX: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")

_CHECKS: Final = (
    check_host_json,
    check_storage_account,
    app_settings,
    intake_settings,
)
"""Read every group of app settings of the core."""

# Begins the names of the functions that the SDK adds to every blueprint; the app has its own already.
_SDK_PREFIX: Final = "BuiltIn__"


def register(
    app: func.FunctionRegister,
    *,
    route_prefix: str = "",
    function_prefix: str = "",
    dependencies_file: str | Path | None = None,
    handlers: Iterable[str] = (),
    sources: Iterable[str] | None = None,
) -> None:
    """Add Durable Retry to a Durable Functions 2.x app; called once, where the app's functions are declared.

        app = df.DFApp()
        durable_retry.register(app, route_prefix="retries", handlers=["billing"])

    Args:
        app: The app, a `df.DFApp`.
        route_prefix: Path of all routes below the host's own prefix: with `retries` an operation is posted to
            `/api/retries/operations`.
        function_prefix: Begins the name of every function, with lower-case letters, digits and `_`, so that
            none has the name of a function of the app's own. Histories hold these names: do not change it
            while operations run.
        dependencies_file: Path of the file with the dependencies, relative to the app's folder; None means
            `dependencies.toml`. The app setting `DEPENDENCIES_FILE` comes before it.
        handlers: Names of modules that register handlers when they are imported, beside those of the app
            setting `HANDLERS`. Handlers of modules that the app imports itself need no name here.
        sources: The sources that start operations, of `queue`, `event_grid`, `service_bus`, `event_hubs`,
            `cosmos_db`, `kafka` and `timer`; None means the first two and those whose app settings are
            present. HTTP is always there; without `queue` it has no `operations/enqueue`.

    Raises:
        StartError: Lists every mistake in parameters, app settings, host.json, the file of dependencies and
            handlers, each with the file and line to change.
    """
    chosen = Registration(
        route_prefix=route_prefix.strip("/") if isinstance(route_prefix, str) else route_prefix,
        function_prefix=function_prefix,
        dependencies_file=dependencies_file,
        handlers=_tuple_of_names(handlers),
        sources=None if sources is None else frozenset(_tuple_of_names(sources)),
    )
    caller = sys._getframe(1)
    mistakes = Mistakes(APP_ROOT, f"{caller.f_code.co_filename}:{caller.f_lineno}")
    harden_runtime()
    use_registration(_usable(chosen, app, mistakes))
    for read in _CHECKS:
        with mistakes.gathered():
            read()
    for group in groups_of_plugins():
        with mistakes.gathered():
            group.read(os.environ)
    for name, text in os.environ.items():
        # A setting that is off needs no feature; Azure itself sets WEBSITE_AUTH_ENABLED, mostly to False.
        if text.lower() not in {"", "false"} and (absent := why_absent(name)):
            mistakes.add(mistakes.place_of(name), absent)
    load_app(mistakes)
    if chosen.handlers and not hook("handlers"):
        mistakes.add(mistakes.place_of("register(handlers)"), "this app lacks the feature that runs handlers")
    with mistakes.gathered():
        builders = _own_functions() if has_dependencies() else []
        if isinstance(app, func.FunctionRegister):
            _check_names(app, builders)
    mistakes.refuse()
    _registered[app] = mistakes.shown(mistakes.registered_at)
    subscribe_watchers()
    begin_plugins()
    container = df.Blueprint()  # The SDK has no call that adds a function as it is.
    container._function_builders = builders
    app.register_functions(container)


def subscribe_watchers() -> None:
    """Subscribe the plugins to the facts that the core reports."""
    for plugin in plugins():
        plugin.subscribe()


def begin_plugins() -> None:
    """Begin what plugins do in the background."""
    for plugin in plugins():
        plugin.begin()


def harden_runtime() -> None:
    """Switch off defaults of libraries that are unsafe or too loud; guard the SDK's executor."""
    # By default the Durable codec instantiates the class that a JSON object names with the keys "__class__",
    # "__module__" and "__data__", also in data from callers and dependencies.
    strict_typing = "azure_functions_durable_strict_typing"
    os.environ.setdefault(AppSettings.name_of(strict_typing), getattr(AppSettings(), strict_typing))
    # httpx logs whole URLs, and a query can contain confidential data.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    # The Durable SDK logs each start and each turn; the app logs one line when an operation ends.
    sdk = logging.getLogger("azure.durable_functions")
    if sdk.level == logging.NOTSET:
        sdk.setLevel(logging.WARNING)
    guard_executor()


def _tuple_of_names(names: Any) -> tuple[Any, ...]:
    # Anything but a list, such as a lone string, is wrapped, so that the checks can refuse it.
    return (
        tuple(names) if isinstance(names, Iterable) and not isinstance(names, str) else (_NotListed(names),)
    )


@dataclass(frozen=True, slots=True)
class _NotListed:
    """A value where a list was expected; the error shows it as it was written."""

    value: Any

    def __repr__(self) -> str:
        return repr(self.value)


def _usable(chosen: Registration, app: Any, mistakes: Mistakes) -> Registration:
    """Return what was chosen without the parameters that are wrong, so that the other mistakes show, too."""
    problems = tuple(_registration_mistakes(app, chosen))
    for problem in problems:
        mistakes.add(mistakes.place_of(problem.pointer), problem.detail)
    wrong = {problem.pointer for problem in problems}
    names = (field.name for field in fields(chosen) if f"register({field.name})" not in wrong)
    return Registration(**{name: getattr(chosen, name) for name in names})


def _registration_mistakes(app: Any, chosen: Any) -> Iterator[Problem]:
    # Types are checked, too: nothing else does that at run time.
    if not isinstance(app, func.FunctionRegister):
        yield Problem("register(app)", f"must be a df.DFApp, not {type(app).__name__}")
    if chosen.route_prefix != "" and not _is_of_form(_ROUTE, chosen.route_prefix):
        yield Problem(
            "register(route_prefix)",
            f"must be a path of letters, digits, '-' and '_', such as 'retries', not {chosen.route_prefix!r}",
        )
    if chosen.function_prefix != "" and not _is_of_form(_PREFIX, chosen.function_prefix):
        yield Problem(
            "register(function_prefix)",
            "must be at most 32 lower-case letters, digits and '_', a letter first, such as 'retry_', "
            f"not {chosen.function_prefix!r}",
        )
    if not isinstance(chosen.dependencies_file, str | Path | None):
        yield Problem("register(dependencies_file)", f"must be a path, not {chosen.dependencies_file!r}")
    for module in chosen.handlers:
        if not isinstance(module, str):
            yield Problem("register(handlers)", f"must be a list of names of modules; {module!r} is none")
    known = [QUEUE_SOURCE, *sources()]
    for source in sorted(chosen.sources or (), key=str):
        if source not in known:
            guess = did_you_mean(str(source), known)
            yield Problem("register(sources)", f"must be a list of {', '.join(known)}, not {source!r}{guess}")


def _is_of_form(form: re.Pattern[str], text: Any) -> bool:
    return isinstance(text, str) and form.fullmatch(text) is not None


def _own_functions() -> list[FunctionBuilder]:
    blueprints = (routing.blueprint(), timers.blueprint, *source_blueprints(), *_durable_blueprints())
    builders = (builder for blueprint in blueprints for builder in blueprint._function_builders)
    return [
        _placed_function(builder) for builder in builders if not _name_of(builder).startswith(_SDK_PREFIX)
    ]


def _durable_blueprints() -> Iterator[df.Blueprint]:
    for folder in DURABLE_FOLDERS:
        yield from import_module(f"{_durable_package()}{folder}").blueprints()
    for plugin in plugins():
        yield from plugin.blueprints()


def _durable_package() -> str:
    """Return the package of the durable folders with a dot; "" in the repository, where they are on top."""
    inside = f"{__package__}."
    return inside if find_spec(f"{inside}{DURABLE_FOLDERS[0]}") is not None else ""


def _name_of(builder: FunctionBuilder) -> str:
    return builder._function.get_function_name() or ""


def _placed_function(builder: FunctionBuilder) -> FunctionBuilder:
    """Return a function under the name and path that were chosen.

    It is a copy: the blueprints belong to the process, which may load the app again.
    """
    placed, function = copy(builder), copy(builder._function)
    placed._function = function
    trigger: Any = copy(function.get_trigger())
    trigger._dict = dict(trigger._dict)
    function._bindings = [
        trigger if binding is function._trigger else binding for binding in function._bindings
    ]
    function._trigger = trigger
    if isinstance(trigger, HttpTrigger):
        trigger.route = "/".join(filter(None, (registration().route_prefix, trigger.route)))
    for attribute in ("orchestration", "activity", "entity_name"):
        if (durable_name := getattr(trigger, attribute, None)) is not None:
            setattr(trigger, attribute, function_name(durable_name))
    entity = getattr(function._func, "entity_function", None)
    if entity is not None:
        entity.__durable_entity_name__ = trigger.entity_name  # the SDK's worker registers it under this name
    name = FunctionName(function_name(_name_of(builder)))
    function._settings = [
        name,
        *(setting for setting in function._settings if setting.setting_name != name.setting_name),
    ]
    return placed


_registered: Final[WeakKeyDictionary[Any, str]] = WeakKeyDictionary()
"""File and line of the call of `register` for each app."""


def _check_names(app: func.FunctionRegister, builders: Iterable[FunctionBuilder]) -> None:
    if (before := _registered.get(app)) is not None:
        raise SettingsError((Problem("register(app)", f"was called before, at {before}: call it once"),))
    # The host's own error would not say what to do.
    taken = {_name_of(builder) for builder in app._function_builders}
    doubled = sorted(taken & {_name_of(builder) for builder in builders})
    if doubled:
        detail = (
            f"the app has functions named {', '.join(doubled)} already: "
            "a function_prefix keeps its names apart from the app's own"
        )
        raise SettingsError((Problem("register(function_prefix)", detail),))
