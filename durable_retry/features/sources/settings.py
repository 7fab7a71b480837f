"""App settings of messages and streams."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar, Final

from azure.functions.decorators.kafka import BrokerAuthenticationMode, BrokerProtocol
from pydantic import AfterValidator

from durable_retry.base.validation import Problem, pointer_problem
from durable_retry.features.sources import names
from durable_retry.settings.configuration import APP_ROOT, host_time_span
from durable_retry.settings.group import SettingsError, SettingsGroup, setting
from durable_retry.settings.intake import IntakeSettings, intake_settings
from durable_retry.settings.mistakes import HOST_JSON


@dataclass(frozen=True, slots=True)
class Requirement:
    """The settings of one source; either all are set or none."""

    settings: tuple[str, ...]  # fields of `SourceSettings` that are required
    # The field that names the connection: the setting itself, or settings that begin with it and `__` for a
    # managed identity; None when the source has no connection.
    connection: str | None = None


REQUIREMENTS: Final[Mapping[str, Requirement]] = {
    names.SERVICE_BUS: Requirement(("service_bus_queue",), "service_bus_connection"),
    names.SERVICE_BUS_TOPIC: Requirement(
        ("service_bus_topic", "service_bus_subscription"), "service_bus_connection"
    ),
    names.EVENT_HUBS: Requirement(("event_hub",), "event_hub_connection"),
    names.COSMOS_DB: Requirement(("cosmos_database", "cosmos_container"), "cosmos_connection"),
    names.KAFKA: Requirement(("kafka_brokers", "kafka_topic")),
}


def _check_pointer(pointer: str) -> str:
    if (detail := pointer_problem(pointer)) is not None:
        raise ValueError(f"{pointer!r} {detail}")
    return pointer


class SourceSettings(SettingsGroup):
    """The sources of operations beside HTTP and the queue."""

    heading: ClassVar[str] = "Sources"

    service_bus_queue: str = setting("Queue to read.")
    service_bus_topic: str = setting("Topic to read.")
    service_bus_subscription: str = setting("Its subscription.")
    service_bus_connection: str = setting("Connection of the queue and the topic.", secret=True)
    service_bus_sessions: str = setting(
        "`true`: they require sessions, which the host then reads one message after the other.",
        "false",
        choices=("true", "false"),
    )
    service_bus_dead_letters: str = setting(
        "`true`: takes over what lies in their own dead-letter queues.", "false", choices=("true", "false")
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

    @classmethod
    def mistakes_across(cls, environ: Mapping[str, str]) -> Iterator[Problem]:
        """Find the settings that are missing beside others of the same source."""
        connected = {
            needed.connection
            for needed in REQUIREMENTS.values()
            if any(environ.get(cls.name_of(field)) for field in needed.settings)
        }
        for needed in REQUIREMENTS.values():
            names = [cls.name_of(field) for field in needed.settings]
            is_set = {name: bool(environ.get(name)) for name in names}
            # Where a connection of several sources is set alone, the first of them counts as wanted.
            if needed.connection is not None and (any(is_set.values()) or needed.connection not in connected):
                connected.add(needed.connection)
                connection = cls.name_of(needed.connection)
                is_set[connection] = _has_connection(connection, environ)
            if any(is_set.values()):
                beside = ", ".join(name for name in is_set if is_set[name])
                missing = (name for name in is_set if not is_set[name])
                yield from (Problem(name, f"is missing: needed beside {beside}") for name in missing)

    @property
    def places(self) -> dict[str, str]:
        """The scope in which the ids of each configured source are unique, such as the queue's name."""
        scopes = {
            names.SERVICE_BUS: self.service_bus_queue,
            names.SERVICE_BUS_TOPIC: "/".join(
                filter(None, (self.service_bus_topic, self.service_bus_subscription))
            ),
            names.EVENT_HUBS: self.event_hub,
            names.COSMOS_DB: "/".join(filter(None, (self.cosmos_database, self.cosmos_container))),
            names.KAFKA: self.kafka_topic,
        }
        return {source: scope for source, scope in scopes.items() if scope}


def _has_connection(name: str, environ: Mapping[str, str]) -> bool:
    return any(
        value and (variable == name or variable.startswith(f"{name}__"))
        for variable, value in environ.items()
    )


@cache
def source_settings() -> SourceSettings:
    """Return this process's settings, read once; see `SettingsGroup.read`."""
    return SourceSettings.read(os.environ)


_RENEWAL: Final = "maxAutoLockRenewalDuration"
_TO_START_SECONDS: Final = 10.0
"""The longest that a start takes after the pause, while nothing is behind."""


def check_lock(host_json: Path = APP_ROOT / HOST_JSON) -> None:
    """Refuse a pause of deliveries that outlasts the lock of a Service Bus message: it would come again.

    The host renews a lock for so long by host.json, 5 minutes where that says nothing.

    Raises:
        SettingsError: The pause is too long, or host.json has no time span there.
    """
    renewed = host_time_span("serviceBus", _RENEWAL, default="00:05:00", host_json=host_json)
    pause = intake_settings().intake_pause_seconds
    if pause + _TO_START_SECONDS > renewed:
        most = f"host.json keeps the lock of a Service Bus message for {renewed:g} s ({_RENEWAL})"
        detail = f"{pause:g} s are too long: {most}, and a start needs {_TO_START_SECONDS:g} s after it"
        raise SettingsError([Problem(IntakeSettings.name_of("intake_pause_seconds"), detail)])
