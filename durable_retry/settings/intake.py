"""App settings of what takes operations: limits of HTTP; sources, keys, concurrency, backpressure."""

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from durable_retry.engine.base.validation import InvalidInputError, Problem, pointer_problem
from durable_retry.engine.intake import LagLimits
from durable_retry.engine.schedules import ScheduledOperation, parse_schedules
from durable_retry.settings.catalogue import (
    COSMOS_CONNECTION,
    COSMOS_CONTAINER,
    COSMOS_DATABASE,
    COSMOS_OPERATION,
    EVENT_HUB,
    EVENT_HUB_CONNECTION,
    HTTP_CONCURRENCY,
    HTTP_TASK_HUB_LAG_SECONDS,
    INTAKE_CONCURRENCY,
    INTAKE_DEPENDENCY_LAG_SECONDS,
    INTAKE_ORDER,
    INTAKE_PAUSE_SECONDS,
    INTAKE_RETRIES,
    INTAKE_TASK_HUB_LAG_SECONDS,
    KAFKA_BROKERS,
    KAFKA_TOPIC,
    KEY_POINTERS,
    SCHEDULED_OPERATIONS,
    SERVICE_BUS_CONNECTION,
    SERVICE_BUS_QUEUE,
)
from durable_retry.settings.configuration import APP_ROOT, HOST_JSON
from durable_retry.settings.setting import SettingsError, Text

TIMER: Final = "timer"
"""The source whose message ids are made here: name and due time."""

_DEFAULT_MAX_DEQUEUE_COUNT: Final = 5
"""The host's default."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """The settings of one source; either all are set or none.

    Attributes:
        settings: Required settings.
        connection: Names the connection: the setting itself, or settings that begin with it and `__` for a
            managed identity; None when the source has no connection.
    """

    settings: tuple[Text, ...]
    connection: Text | None = None


REQUIREMENTS: Final[Mapping[str, Requirement]] = {
    "service_bus": Requirement((SERVICE_BUS_QUEUE,), SERVICE_BUS_CONNECTION),
    "event_hubs": Requirement((EVENT_HUB,), EVENT_HUB_CONNECTION),
    "cosmos_db": Requirement((COSMOS_DATABASE, COSMOS_CONTAINER), COSMOS_CONNECTION),
    "kafka": Requirement((KAFKA_BROKERS, KAFKA_TOPIC)),
}


_WITH_POINTERS: Final = ("", "queue", "event_grid", *REQUIREMENTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeSettings:
    """Settings of the event sources.

    Attributes:
        places: Per configured source of `REQUIREMENTS` the scope in which its ids are unique, such as the
            queue's name.
        schedules: Operations that a timer starts.
        key_pointers: JSON pointers whose values make a key, by source; "" is the default of all sources.
        keeps_order: Whether operations of one partition are started sequentially in the partition's order.
        concurrency: Starts under way at once in this process, from all sources but HTTP.
        retries: Platform retries of a batch; -1 for ever.
        lag: Limits of backpressure.
        pause_seconds: Maximum wait of one delivery under backpressure.
        cosmos_operation: JSON pointer of the operation in a changed document; "" is the document itself.
        http_concurrency: Submissions over HTTP under way at once in this process; 0 means no limit.
        http_lag: Of the task hub, above which submissions over HTTP are refused for a while.
        max_dequeue_count: From host.json; after so many deliveries a queue message goes to the poison queue.
    """

    places: Mapping[str, str] = field(default_factory=dict)
    schedules: tuple[ScheduledOperation, ...] = ()
    key_pointers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    keeps_order: bool = False
    concurrency: int = int(INTAKE_CONCURRENCY.default)
    retries: int = int(INTAKE_RETRIES.default)
    lag: LagLimits = field(default_factory=LagLimits)
    pause_seconds: float = INTAKE_PAUSE_SECONDS.default
    cosmos_operation: str = ""
    http_concurrency: int = int(HTTP_CONCURRENCY.default)
    http_lag: LagLimits = field(default_factory=lambda: _http_lag(HTTP_TASK_HUB_LAG_SECONDS.default))
    max_dequeue_count: int = _DEFAULT_MAX_DEQUEUE_COUNT

    def pointers_for(self, source: str) -> tuple[str, ...]:
        """Return the key pointers of one source; empty when its own ids are the keys."""
        if source == TIMER:
            return ()
        return self.key_pointers.get(source, self.key_pointers.get("", ()))


def read_intake_settings(environ: Mapping[str, str], *, max_dequeue_count: int) -> IntakeSettings:
    """Read the settings.

    Raises:
        SettingsError: Lists every missing setting of a half-configured source and every invalid value.
    """
    problems: list[Problem] = []
    settings = IntakeSettings(
        places={
            source: "/".join(setting.get(environ) for setting in needed.settings)
            for source, needed in REQUIREMENTS.items()
            if _is_there(needed, environ, problems)
        },
        schedules=_schedules(SCHEDULED_OPERATIONS.get(environ), problems),
        key_pointers=_key_pointers(environ, problems),
        keeps_order=INTAKE_ORDER.choice(environ, problems) == "partition",
        concurrency=INTAKE_CONCURRENCY.read(environ, problems),
        retries=_retries(environ, problems),
        lag=LagLimits(
            task_hub_seconds=INTAKE_TASK_HUB_LAG_SECONDS.read(environ, problems),
            dependency_seconds=INTAKE_DEPENDENCY_LAG_SECONDS.read(environ, problems),
        ),
        pause_seconds=INTAKE_PAUSE_SECONDS.read(environ, problems),
        cosmos_operation=_pointer(COSMOS_OPERATION.name, COSMOS_OPERATION.get(environ), problems),
        http_concurrency=HTTP_CONCURRENCY.read(environ, problems),
        http_lag=_http_lag(HTTP_TASK_HUB_LAG_SECONDS.read(environ, problems)),
        max_dequeue_count=max_dequeue_count,
    )
    if problems:
        raise SettingsError(tuple(problems))
    return settings


@cache
def intake_settings() -> IntakeSettings:
    """Return this process's settings, read once.

    Raises:
        SettingsError: See `read_intake_settings`.
    """
    return read_intake_settings(os.environ, max_dequeue_count=_max_dequeue_count(APP_ROOT / HOST_JSON))


def _http_lag(task_hub_seconds: float) -> LagLimits:
    """Return limits of the task hub alone: an operation whose dependency is down waits at no cost."""
    return LagLimits(task_hub_seconds=task_hub_seconds, dependency_seconds=0.0)


def _max_dequeue_count(host_json: Path) -> int:
    queues = json.loads(host_json.read_text(encoding="utf-8")).get("extensions", {}).get("queues", {})
    return int(queues.get("maxDequeueCount", _DEFAULT_MAX_DEQUEUE_COUNT))


def _is_there(needed: Requirement, environ: Mapping[str, str], problems: list[Problem]) -> bool:
    """Return whether a source is configured; a half-configured one is a problem."""
    missing = [setting.name for setting in needed.settings if not setting.get(environ)]
    asked_for = [setting.name for setting in needed.settings if setting.get(environ)]
    if needed.connection is not None:
        name = needed.connection.name
        (asked_for if _has_connection(name, environ) else missing).append(name)
    if asked_for:
        beside = " and ".join(asked_for)
        problems.extend(Problem(name, f"is missing: {beside} is set, and needs it") for name in missing)
    return not missing


def _has_connection(name: str, environ: Mapping[str, str]) -> bool:
    return any(value and (each == name or each.startswith(f"{name}__")) for each, value in environ.items())


def _schedules(text: str, problems: list[Problem]) -> tuple[ScheduledOperation, ...]:
    """Read the setting's TOML, or the file that it names."""
    if not text.strip():
        return ()
    try:
        return parse_schedules(_content_of(text))
    except (InvalidInputError, OSError, UnicodeDecodeError) as error:
        cannot = Problem("", f"names a file that cannot be read: {error}")
        found = error.problems if isinstance(error, InvalidInputError) else (cannot,)
        problems.extend(Problem(f"{SCHEDULED_OPERATIONS.name}{each.pointer}", each.detail) for each in found)
        return ()


def _content_of(text: str) -> str:
    """Return the setting itself, or the content of the file that it names (a file name is not valid TOML)."""
    name = text.strip()
    if "\n" in name or not name.endswith(".toml"):
        return text
    try:
        tomllib.loads(name)
    except tomllib.TOMLDecodeError:
        return (APP_ROOT / name).read_text(encoding="utf-8")
    return text


def _key_pointers(environ: Mapping[str, str], problems: list[Problem]) -> dict[str, tuple[str, ...]]:
    """Read `KEY_POINTERS` and its variants per source, such as `KEY_POINTERS_KAFKA`."""
    prefix = KEY_POINTERS.name
    found = {}
    for name, text in environ.items():
        if name == prefix or name.startswith(f"{prefix}_"):
            if name[len(prefix) + 1 :].lower() not in _WITH_POINTERS:
                problems.append(Problem(name, f"names no source; there are {', '.join(_WITH_POINTERS[1:])}"))
            pointers = [part.strip() for part in text.split(",") if part.strip()]
            found[name[len(prefix) + 1 :].lower()] = tuple(
                _pointer(name, pointer, problems) for pointer in pointers
            )
    return found


def _pointer(name: str, pointer: str, problems: list[Problem]) -> str:
    if (detail := pointer_problem(pointer)) is not None:
        problems.append(Problem(name, f"{pointer!r} {detail}"))
    return pointer


def _retries(environ: Mapping[str, str], problems: list[Problem]) -> int:
    """Read the platform's retry count; refuse 0, with which a failed batch would be lost."""
    count = INTAKE_RETRIES.read(environ, problems)
    if count == 0:
        problems.append(Problem(INTAKE_RETRIES.name, "must be at least 1, or -1 for ever"))
    return count
