"""App settings of what takes operations: limits of HTTP; sources, keys, concurrency, backpressure."""

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

from azure.functions.decorators.kafka import BrokerAuthenticationMode, BrokerProtocol
from pydantic import AfterValidator, BeforeValidator

from durable_retry.engine.base.validation import InvalidInputError, Problem, pointer_problem
from durable_retry.engine.sources import LagThresholds, ScheduledOperation, parse_schedules
from durable_retry.settings.configuration import APP_ROOT
from durable_retry.settings.group import SettingsGroup, seconds, setting
from durable_retry.settings.mistakes import HOST_JSON

TIMER: Final = "timer"
"""The source whose message ids are made here: name and due time."""

_DEFAULT_MAX_DEQUEUE_COUNT: Final = 5
"""The host's default."""

_LAG: Final = LagThresholds()


@dataclass(frozen=True, slots=True)
class Requirement:
    """The settings of one source; either all are set or none."""

    settings: tuple[str, ...]  # fields of `IntakeSettings` that are required
    # The field that names the connection: the setting itself, or settings that begin with it and `__` for a
    # managed identity; None when the source has no connection.
    connection: str | None = None


REQUIREMENTS: Final[Mapping[str, Requirement]] = {
    "service_bus": Requirement(("service_bus_queue",), "service_bus_connection"),
    "event_hubs": Requirement(("event_hub",), "event_hub_connection"),
    "cosmos_db": Requirement(("cosmos_database", "cosmos_container"), "cosmos_connection"),
    "kafka": Requirement(("kafka_brokers", "kafka_topic")),
}

_WITH_POINTERS: Final = ("", "queue", "event_grid", *REQUIREMENTS)


def _split_pointers(by_suffix: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Read the JSON pointers of each source, separated by commas; "" is the default of all sources."""
    pointers: dict[str, tuple[str, ...]] = {}
    wrong = []
    for suffix, text in by_suffix.items():
        source = suffix.lower().removeprefix("_")
        if source not in _WITH_POINTERS:
            wrong.append(Problem(suffix, f"names no source; there are {', '.join(_WITH_POINTERS[1:])}"))
        pointers[source] = tuple(filter(None, (part.strip() for part in text.split(","))))
        mistakes = ((pointer, pointer_problem(pointer)) for pointer in pointers[source])
        wrong.extend(Problem(suffix, f"{pointer!r} {detail}") for pointer, detail in mistakes if detail)
    if wrong:
        raise InvalidInputError(wrong)
    return pointers


def _check_pointer(pointer: str) -> str:
    if (detail := pointer_problem(pointer)) is not None:
        raise ValueError(f"{pointer!r} {detail}")
    return pointer


def _check_retries(count: int) -> int:
    if count == 0:  # A failed batch would be lost.
        raise ValueError("must be at least 1, or -1 for ever")
    return count


def _parsed_schedules(text: Any) -> Any:
    """Read the setting's TOML, or the file that it names."""
    if not isinstance(text, str) or not text.strip():
        return () if isinstance(text, str) else text
    try:
        return parse_schedules(_content_of(text))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"names a file that cannot be read: {error}") from None


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


class IntakeSettings(SettingsGroup):
    """The sources of operations, and how much is taken from them at once."""

    heading: ClassVar[str] = "Sources"

    service_bus_queue: str = setting("Queue to read.")
    service_bus_connection: str = setting("Its connection.", secret=True)
    service_bus_sessions: str = setting(
        "`true`: the queue requires sessions, which the host then reads one message after the other.",
        "false",
        choices=("true", "false"),
    )
    event_hub: str = setting("Event hub to read.")
    event_hub_connection: str = setting("Its connection.", secret=True)
    event_hub_consumer_group: str = setting("Consumer group.", "$Default")
    cosmos_database: str = setting("Database whose change feed is read.")
    cosmos_container: str = setting("Container there.")
    cosmos_connection: str = setting("Its connection.", secret=True)
    cosmos_lease_container: str = setting("Where the host keeps its position.", "leases")
    cosmos_operation: Annotated[str, AfterValidator(_check_pointer)] = setting(
        "JSON pointer of the operation in a changed document. Not set: the document itself."
    )
    kafka_brokers: str = setting("Brokers, `host:port` separated by commas.")
    kafka_topic: str = setting("Topic to read.")
    kafka_consumer_group: str = setting("Consumer group. Not set: the extension's default.")
    kafka_username: str = setting("User at the brokers.")
    kafka_password: str = setting("The user's password.", secret=True)
    kafka_protocol: str = setting(
        "Protocol of the brokers. Not set: the extension's default.",
        choices=tuple(BrokerProtocol.__members__),
    )
    kafka_authentication: str = setting(
        "Authentication of the user. Not set: the extension's default.",
        choices=tuple(BrokerAuthenticationMode.__members__),
    )
    scheduled_operations: Annotated[tuple[ScheduledOperation, ...], BeforeValidator(_parsed_schedules)] = (
        setting("TOML of operations with schedules, or the name of a `.toml` file with it.", ())
    )
    key_pointers: Annotated[Mapping[str, tuple[str, ...]], BeforeValidator(_split_pointers)] = setting(
        "JSON pointers into an operation's body, separated by commas, whose values make its key. "
        "`KEY_POINTERS_KAFKA` and the like apply to one source.",
        {},
    )
    # A submission and its operation take 8.5 ms of a processor, and twice as long where much else runs.
    http_concurrency: int = setting(
        "Submissions over HTTP under way at once in one process; a further one is answered 503; 0 = no "
        "limit.",
        50,
        least=0,
    )
    http_waits: int = setting(
        "Submissions over HTTP in one process that wait for their end (`Prefer: wait`) at once; a further "
        "one is answered 202 without a wait; 0 = no limit.",
        200,
        least=0,
    )
    http_task_hub_lag_seconds: float = seconds(
        "Submissions over HTTP are answered 503 while an operation has not begun for so long; 0 = off.", 300.0
    )
    intake_order: str = setting(
        "`partition`: starts the operations of one partition one after the other, in order. `order_key`: "
        "also gives those without an `order_key` one of their partition or session, so that each runs "
        "when the one before it has ended.",
        "none",
        choices=("none", "partition", "order_key"),
    )
    intake_concurrency: int = setting(
        "Starts in progress at once in one process, from all sources but HTTP.", 16, least=1
    )
    intake_retries: Annotated[int, AfterValidator(_check_retries)] = setting(
        "The platform's retries of a batch or timer; -1 = without end; 0 is refused.", -1, least=-1
    )
    intake_task_hub_lag_seconds: float = seconds(
        "The task hub is far behind when an operation has not begun after this time; 0 = off.",
        _LAG.task_hub_seconds,
    )
    intake_dependency_lag_seconds: float = seconds(
        "A dependency is far behind when an operation still waits for the circuit or is throttled this long "
        "after its start; 0 = off.",
        _LAG.dependency_seconds,
    )
    intake_pause_seconds: float = seconds(
        "The longest that one delivery waits while the task hub or a dependency is far behind.", 20.0
    )

    @classmethod
    def texts_in(cls, environ: Mapping[str, str]) -> dict[str, Any]:
        """Add the pointers of single sources: an empty one says that this source has none."""
        name = cls.name_of("key_pointers")
        pointers = {
            variable.removeprefix(name): text
            for variable, text in environ.items()
            if variable == name or variable.startswith(f"{name}_")
        }
        return super().texts_in(environ) | ({name: pointers} if pointers else {})

    @classmethod
    def mistakes_across(cls, environ: Mapping[str, str]) -> Iterator[Problem]:
        """Find the settings that are missing beside others of the same source."""
        for needed in REQUIREMENTS.values():
            names = [cls.name_of(field) for field in needed.settings]
            is_set = {name: bool(environ.get(name)) for name in names}
            if needed.connection is not None:
                connection = cls.name_of(needed.connection)
                is_set[connection] = _has_connection(connection, environ)
            beside = " and ".join(name for name in is_set if is_set[name])
            if beside:
                missing = (name for name in is_set if not is_set[name])
                yield from (Problem(name, f"is missing: {beside} is set, and needs it") for name in missing)

    @property
    def places(self) -> dict[str, str]:
        """The scope in which the ids of each configured source are unique, such as the queue's name."""
        values = {
            source: [getattr(self, field) for field in needed.settings]
            for source, needed in REQUIREMENTS.items()
        }
        return {source: "/".join(parts) for source, parts in values.items() if all(parts)}

    @property
    def keeps_order(self) -> bool:
        """Whether operations of one partition are started one after the other, in the partition's order."""
        return self.intake_order != "none"

    @property
    def gives_order_keys(self) -> bool:
        """Whether operations of one partition also run one after the other."""
        return self.intake_order == "order_key"

    @property
    def lag(self) -> LagThresholds:
        """Limits of backpressure."""
        return LagThresholds(
            task_hub_seconds=self.intake_task_hub_lag_seconds,
            dependency_seconds=self.intake_dependency_lag_seconds,
        )

    @property
    def http_lag(self) -> LagThresholds:
        """Limits of the task hub alone: an operation whose dependency is down waits at no cost."""
        return LagThresholds(task_hub_seconds=self.http_task_hub_lag_seconds, dependency_seconds=0.0)

    def pointers_for(self, source: str) -> tuple[str, ...]:
        """Return the key pointers of one source; empty when its own ids are the keys."""
        if source == TIMER:
            return ()
        return self.key_pointers.get(source, self.key_pointers.get("", ()))


def _has_connection(name: str, environ: Mapping[str, str]) -> bool:
    return any(
        value and (variable == name or variable.startswith(f"{name}__"))
        for variable, value in environ.items()
    )


@cache
def intake_settings() -> IntakeSettings:
    """Return this process's settings, read once; see `SettingsGroup.read`."""
    return IntakeSettings.read(os.environ)


@cache
def max_dequeue_count(host_json: Path = APP_ROOT / HOST_JSON) -> int:
    """Return after how many deliveries the host moves a queue message to the poison queue."""
    queues = json.loads(host_json.read_text(encoding="utf-8")).get("extensions", {}).get("queues", {})
    return int(queues.get("maxDequeueCount", _DEFAULT_MAX_DEQUEUE_COUNT))
