"""What plugs in: the features of `durable_retry.features`, and other distributions, such as the console.

The core imports none of them by name. A feature is a package in `durable_retry.features` with a `PLUGIN`; a
distribution has an entry point of the group `durable_retry.plugins`, which names one. Every app has the
features that its wheel has, and the distributions that are installed where it runs.

The core calls `plugins()` where they can extend it. They come in the order of their names, features first, so
that a replay calls them in the order of its history. What a plugin adds is named by a text,
`package.module:name`, where it costs an import: see `durable_retry.runtime.deferred`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.resources import files
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Final, Literal

from durable_retry.runtime.deferred import imported

if TYPE_CHECKING:
    import azure.durable_functions as df

FEATURES: Final = "durable_retry.features"
GROUP: Final = "durable_retry.plugins"


REST: Final = "/{*rest}"


@dataclass(frozen=True, slots=True)
class Collection:
    """Routes with the same first word.

    Attributes:
        path: As the host gets it: `circuits/{*rest}`, or `health` where there is nothing below.
        routes: Where the `Routes` are, as `package.module:name`.
        anonymous: Whether its routes need no function key.
    """

    path: str
    routes: tuple[str, ...]
    anonymous: bool = False

    def has(self, path: str) -> bool:
        """Whether a route is of this collection, by its path."""
        return path.partition("/")[0] == self.path.removesuffix(REST)

    @property
    def function(self) -> str:
        """The name of the host's function; the one for unmatched requests sorts after all others."""
        word = self.path.removesuffix(REST).replace("-", "_").replace(".", "_")
        return f"api_{word}" if self.routes else "unmatched_request"


@dataclass(frozen=True, slots=True, kw_only=True)
class Orchestration:
    """An orchestrator of the app, which has the name of its function."""

    name: str
    prefix: str  # what the ids of its instances begin with
    is_watched: bool = True  # whether upkeep looks whether an instance stands still
    is_restarted: bool = False  # whether upkeep starts an instance again that failed, or was terminated
    stays_terminated: bool = False  # whether `is_restarted` leaves out one that a person terminated
    has_caller: bool = False  # whether an orchestration starts it and waits: only that can start it again
    is_listed: bool = False  # whether `hub.instance_lists` lists its instances
    # Whether its activities call dependencies; its custom status has in `held` since when circuits hold them.
    calls_dependencies: bool = False
    is_idle: str = ""  # where a function is that takes the task hub and the present: whether no instance runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Activities:
    """Activities in a module of the folder `activities`; each has the name of its function."""

    module: str
    with_hub: tuple[str, ...] = ()  # those that take the task hub beside their input
    without_hub: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.with_hub, *self.without_hub)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What starts operations beside HTTP and the queue.

    Attributes:
        blueprint: Returns its functions; None where it lacks its settings.
        needs: The app settings that it needs.
        place: Returns the scope in which the ids of its messages are unique; None as above.
        has_pointers: Whether `KEY_POINTERS` name its operations.
    """

    blueprint: Callable[[], df.Blueprint | None]
    needs: tuple[str, ...] = ()
    place: Callable[[], str | None] = str
    has_pointers: bool = True


def _nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """What a feature or a distribution adds; "where X is" means the text `package.module:name` of X.

    Attributes:
        name: The name of a feature's folder; for a distribution, a name that no feature has.
        needs: The features that a distribution needs: an app that lacks one of them ignores it.
        collections: Its routes, also more of a collection that the app has already.
        orchestrations: Its orchestrators.
        orchestrators: Its modules of the folder `orchestrators`.
        activities: Its activities.
        entities: Its modules of the folder `entities`.
        dependency: Where the model is of the keys that it adds to `[dependencies.X]` and `[defaults]`, each
            with a default; where one of them is written, `Dependency.of_features` has the model.
        check: Where a function is that lists what is wrong with such keys where the app runs, such as a file
            that they name; it takes the dependency, in whose table the problems are.
        attempt: Where a function is that makes an attempt of an operation with a part of it; it takes what
            makes the attempt else, and the `Plan`.
        handlers: Its package of handlers. In `loading` `load_handlers` loads them at a start; it takes the
            file of dependencies, their `Config` or None, and the `Mistakes`. In `registry`
            `registered_handlers` returns each `rules.config.dependency.HandlerTarget` by its name, and
            `handler_of` that of a function. In `attempt` `run_operation` makes an attempt of an operation
            that names one; it takes the `Plan`, the task hub, the `StepAdmission` that an earlier request of
            a step has reached, and the executions of the attempt that sent nothing, and raises
            `attempt.admission.StepBlockedError`. In `lookups` `ask_function` takes a `Plan`, the
            name of a handler and the function to ask about its attempt; the result of the outcome has `says`:
            `found` with the `result`, `failed` with `why`, or `not_found`. In `writes` `commit_writes`
            commits a success with table writes, and `remove_fence` removes what it keeps of the latest run.
        limits: Its module that keeps limits, where its `dependency` is a `rules.config.dependency.Bounds`.
            `WorkerLimits`, made with a circuit and such keys, is a `circuit.cache.WorkerLimits`; `answer_to`
            returns the answer to a step's `rules.retry.slots.SlotRequest`, which was signalled before; None
            while there is none; it takes the task hub, the dependency, the request and the present.
        key_circuits: Where a function is that returns the circuit of a limit key; takes the task hub, the
            dependency's own `circuit.cache.CircuitCache` and the key.
        circuits: Where its `circuit.circuits.CircuitDocuments` is: what it adds to documents of circuits.
        transport: Where a function is that returns the transport of requests to a dependency with such keys;
            it takes the dependency and the transport that it replaces or wraps.
        tls: Where a function is that changes the TLS context of such a dependency; it takes both.
        members: Where its `rules.operations.request.Members` is.
        gate: Its module of the folder `orchestrators` with `begin`, which waits, in place of the usual wait
            for the start, until an operation with a part of this feature may begin; it returns None then, or
            how the operation ends without beginning.
        settle: Its module there with `settle`, which takes the outcome of an attempt of such an operation,
            and returns the outcome to go on with. It returns None where that is not known yet and a cancel, a
            pause or a new execution comes first: `settle` is called with the same outcome after that.
        play: Where a function is that does in the test kit what `settle` does; it takes the `Play` and the
            outcome, and returns the one to go on with.
        decision: Its module there with `in_place_of`, which takes what is decided about such an operation,
            and returns the decision to carry out; None where the next attempt follows at once.
        exhausted: Its module there with `hold`, which takes the dead letter of an operation whose policy has
            `on_exhausted = "hold"`, and returns whether the operation goes on in place of that.
        end: Its module there with `end`, which is called with the last document of such an operation.
        refuse: Where a function is that may refuse the start of such an operation; it takes the task hub and
            the operation, and raises `base.errors.OverloadedError`.
        start: Where a function is that starts such an operation, unless it begins later; it takes the task
            hub, the function that starts an operation, and the operation.
        archived: Where a function is for a dead letter of such an operation that was archived; it takes the
            task hub and the dead letter.
        commit: Where a function is that returns the rows that it adds to the transaction of a commit; it
            takes the run's id, the `CommitLocation`, the `Success` and the present. What must be stored
            before the transaction it stores itself.
        failure: Where a function is that returns the rows that it adds to the transaction which stores the
            dead letter of such an operation; it takes the dead letter and the present. What must be stored
            before the transaction it stores itself.
        follower: Its module of the folder `orchestrators` with `follow`, which begins what follows a commit,
            and returns members of the status document. With `failure` also `follow_failure`, for a dead
            letter.
        status: Where a function is that returns a status document with what is stored beside it.
        callers: Where a function is that returns an `http.callers.ReadCaller`, which finds out who sends a
            request; None where its settings say nothing about any caller.
        settings: Where its groups of app settings are.
        of_core: Keys in tables of the core that only it carries out, such as `circuit.by`.
        own_sources: Sources of operations that it starts, whose keys are unique in the whole app.
        executor: The function that guards the app's own orchestrators in the SDK, called once in a process.
        sources: Where its mapping of `Source` by their names is.
        blueprints: Returns durable functions that are in no such folder.
        tables: Where the names of its tables are.
        each_minute: Where steps of upkeep are that the timer `watch` runs; each takes the task hub and the
            present, is bounded, and leaves the rest to the next run.
        each_round: The same, of the timer `maintenance`.
        look: Where the class is of one look at what has not ended, which `watch` has once a minute; made with
            the task hub and the present. `move_on` takes an instance's orchestration and its state, lets it
            go on where it stands still, and returns what was done, None for nothing; `end` ends the look.
        unwatched: Where a function is that looks at one instance that `watch` does not look at; it takes the
            task hub, the id and the present.
        diagnosis: Where functions are that look for trouble when a diagnosis is asked for, by the name of
            its part; each takes the task hub and returns what is wrong, "" for nothing.
        health: Where functions are that look at a part of the app's health, by the name of the part; each
            takes the task hub and returns a `upkeep.health.HealthPart`.
        retention: Where its kinds of `upkeep.removal` are, by their names.
        kept_for: Where a function is that returns how long each kind is kept: a
            `settings.retention.Retention`.
        replay: Its module that replays dead letters. `start_left_over` starts the latest replay of one that
            is replayed, unless it was started; it takes the task hub and the dead letter. `replay_unedited`
            replays one; it takes the task hub, its id, a note or None and the present.
        replay_checks: Where functions are that may refuse the replay of a dead letter, by its source; each
            takes the dead letter and the operation.
        replays: Its modules that replay dead letters of its own kind, by their reason. Each has `start`,
            which takes the task hub and the dead letter; `was_started`, which takes the dead letter and when
            its replay was requested; and `CONTENT`, what the dead letter is about.
        subscribe: Subscribes it to facts (`telemetry.facts`); called when the app is registered. It may be
            called again, and has no effect then.
        begin: Begins what it does in the background.
    """

    name: str = ""
    needs: frozenset[str] = frozenset()
    collections: tuple[Collection, ...] = ()
    orchestrations: tuple[Orchestration, ...] = ()
    orchestrators: tuple[str, ...] = ()
    activities: tuple[Activities, ...] = ()
    entities: tuple[str, ...] = ()
    dependency: str = ""
    check: str = ""
    attempt: str = ""
    handlers: str = ""
    limits: str = ""
    key_circuits: str = ""
    circuits: str = ""
    transport: str = ""
    tls: str = ""
    members: str = ""
    gate: str = ""
    settle: str = ""
    play: str = ""
    decision: str = ""
    exhausted: str = ""
    end: str = ""
    refuse: str = ""
    start: str = ""
    archived: str = ""
    commit: str = ""
    failure: str = ""
    follower: str = ""
    status: str = ""
    callers: str = ""
    settings: tuple[str, ...] = ()
    of_core: tuple[str, ...] = ()
    own_sources: tuple[str, ...] = ()
    executor: str = ""
    sources: str = ""
    blueprints: Callable[[], Iterable[df.Blueprint]] = tuple
    tables: tuple[str, ...] = ()
    each_minute: tuple[str, ...] = ()
    each_round: tuple[str, ...] = ()
    look: str = ""
    unwatched: str = ""
    diagnosis: Mapping[str, str] = field(default_factory=dict)
    health: Mapping[str, str] = field(default_factory=dict)
    retention: Mapping[str, str] = field(default_factory=dict)
    kept_for: str = ""
    replay: str = ""
    replay_checks: Mapping[str, str] = field(default_factory=dict)
    replays: Mapping[str, str] = field(default_factory=dict)
    subscribe: Callable[[], None] = _nothing
    begin: Callable[[], None] = _nothing


@cache
def features() -> tuple[Plugin, ...]:
    """Return the features of this distribution, in the order of their names."""
    packages = iter_modules(import_module(FEATURES).__path__, f"{FEATURES}.")
    names = sorted(package.name for package in packages)
    return tuple(import_module(name).PLUGIN for name in names)


def features_of(parts: Container[str] | None) -> list[Plugin]:
    """Return the features that an operation with these parts uses; without any part none."""
    return [feature for feature in features() if feature.name in parts] if parts else []


@cache
def hook(name: Literal["handlers", "limits", "key_circuits", "replay", "kept_for", "executor"]) -> str:
    """Return what a feature has for a hook that one feature has at most; "" where none has it."""
    return next((str(value) for feature in features() if (value := getattr(feature, name))), "")


@cache
def plugins() -> tuple[Plugin, ...]:
    """Return the features, then what is installed beside them, in the order of their names."""
    return (*features(), *(plugin for plugin in installed() if plugin.needs <= _present()))


@cache
def installed() -> tuple[Plugin, ...]:
    """Return what is installed beside this distribution, in the order of the names."""
    return tuple(point.load() for point in sorted(entry_points(group=GROUP), key=lambda point: point.name))


@cache
def _present() -> frozenset[str]:
    return frozenset(feature.name for feature in features())


def names_added_by(plugin: Plugin) -> set[str]:
    """Return the app settings, keys of a dependency and members that do nothing without a plugin."""
    members = _names_in(imported(plugin.members).model) if plugin.members else set()
    groups = (imported(reference) for reference in plugin.settings)
    settings = {setting.name for group in groups if not group.is_shared for setting in group.described()}
    added = settings | members | keys_added_by(plugin) | set(plugin.of_core)
    return added - {key.partition(".")[0] for key in plugin.of_core}


def keys_added_by(plugin: Plugin) -> set[str]:
    """Return the keys of a dependency that do nothing without a plugin."""
    return _names_in(imported(plugin.dependency)) if plugin.dependency else set()


def _names_in(model: Any) -> set[str]:
    return {info.alias or name for name, info in model.model_fields.items()}


@cache
def names_of_absent() -> dict[str, str]:
    """Return the feature of each app setting, key and member that this app lacks.

    The file that lists them is made from the features, and from the distributions beside this one: `python -m
    docs.published`. What a distribution adds that is installed is of the feature that it needs.
    """
    listed = json.loads(files(FEATURES).joinpath("names.json").read_text(encoding="utf-8"))
    present = _present() | {plugin.name for plugin in installed()}
    absent = {feature: names for feature, names in listed.items() if feature not in present}
    without = (
        (min(lacks), names_added_by(plugin)) for plugin in installed() if (lacks := plugin.needs - _present())
    )
    return {name: feature for feature, names in (*absent.items(), *without) for name in names}


def why_absent(name: str) -> str:
    """Return why this app has no such setting, key or member; "" where no feature that it lacks has it."""
    feature = names_of_absent().get(name)
    return "" if feature is None else f"is of the feature {feature}, which this app lacks"


@cache
def sources() -> dict[str, Source]:
    """Return what starts operations beside HTTP and the queue, by its name."""
    of_plugins = (imported(plugin.sources) for plugin in plugins() if plugin.sources)
    return {name: source for sources in of_plugins for name, source in sources.items()}
