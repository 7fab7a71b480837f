"""The sources of this app: those whose app settings are present."""

import os
from collections.abc import Callable, Mapping
from typing import Any, Final, TextIO

import azure.durable_functions as df

from durable_retry import clock
from durable_retry.engine.base.names import QUEUE_SOURCE
from durable_retry.engine.base.validation import InvalidInputError, Problem
from durable_retry.services.intake import intake
from durable_retry.settings.catalogue import (
    COSMOS_LEASE_CONTAINER,
    EVENT_HUB_CONSUMER_GROUP,
    KAFKA_AUTHENTICATION,
    KAFKA_CONSUMER_GROUP,
    KAFKA_PASSWORD,
    KAFKA_PROTOCOL,
    KAFKA_USERNAME,
    SCHEDULED_OPERATIONS,
)
from durable_retry.settings.configuration import Registration, app_settings, printing_mistakes
from durable_retry.settings.intake import REQUIREMENTS, TIMER, IntakeSettings, intake_settings
from durable_retry.settings.setting import SettingsError, Text
from durable_retry.triggers.events import messages
from durable_retry.triggers.events.streams import (
    COSMOS_DB,
    EVENT_HUBS,
    KAFKA,
    cosmos_db_blueprint,
    event_hubs_blueprint,
    kafka_blueprint,
)
from durable_retry.triggers.timers import run_of, scheduled_operations_blueprint

KAFKA_OPTIONS: Final[Mapping[str, Text]] = {
    "consumer_group": KAFKA_CONSUMER_GROUP,
    "username": KAFKA_USERNAME,
    "password": KAFKA_PASSWORD,
}
"""Settings that become properties of the trigger, all optional."""

KAFKA_CHOICES: Final[Mapping[str, Text]] = {
    "protocol": KAFKA_PROTOCOL,
    "authentication_mode": KAFKA_AUTHENTICATION,
}
"""Settings that become properties of the trigger and have a few allowed values, all optional."""


def source_blueprints(stderr: TextIO | None = None) -> list[df.Blueprint]:
    """Return a blueprint for each source that has its settings; comes after `load_app`.

    Args:
        stderr: Where mistakes are listed; None means the process's own.

    Raises:
        SettingsError: With every setting that is missing beside another, or has no usable value.
    """
    with printing_mistakes(stderr):
        settings, chosen = intake_settings(), app_settings().registration
        _check_chosen(chosen, settings)
        _check_schedules(settings)
        wanted = (name for name in SOURCES if chosen.wants(name) and _has_settings(name, settings))
        return [SOURCES[name](settings) for name in wanted]


def _has_settings(source: str, settings: IntakeSettings) -> bool:
    if source == TIMER:
        return bool(settings.schedules)
    return source not in REQUIREMENTS or source in settings.places


def _check_chosen(chosen: Registration, settings: IntakeSettings) -> None:
    """Refuse a source that the app's code wants by name and that has no settings."""
    missing = [source for source in sorted(chosen.sources or ()) if not _has_settings(source, settings)]
    if missing:
        raise SettingsError(tuple(Problem("register(sources)", _needs(source)) for source in missing))


def _needs(source: str) -> str:
    needed = (SCHEDULED_OPERATIONS,) if source == TIMER else REQUIREMENTS[source].settings
    return f"{source} needs the app setting {' and '.join(setting.name for setting in needed)}"


def _kafka_options() -> dict[str, Any]:
    """Let the trigger read its settings itself, so that a password stays out of the function's metadata."""
    problems: list[Problem] = []
    read = {option: setting.reference for option, setting in KAFKA_OPTIONS.items() if setting.get(os.environ)}
    chosen = {option: setting.choice(os.environ, problems) for option, setting in KAFKA_CHOICES.items()}
    if problems:
        raise SettingsError(tuple(problems))
    return read | {option: word for option, word in chosen.items() if word}


SOURCES: Final[Mapping[str, Callable[[IntakeSettings], df.Blueprint]]] = {
    QUEUE_SOURCE: lambda _: messages.queue_blueprint,
    messages.EVENT_GRID: lambda _: messages.event_grid_blueprint,
    messages.SERVICE_BUS: lambda _: messages.service_bus_blueprint,
    EVENT_HUBS: lambda settings: event_hubs_blueprint(
        settings.retries, EVENT_HUB_CONSUMER_GROUP.get(os.environ)
    ),
    COSMOS_DB: lambda settings: cosmos_db_blueprint(settings.retries, COSMOS_LEASE_CONTAINER.get(os.environ)),
    KAFKA: lambda settings: kafka_blueprint(settings.retries, _kafka_options()),
    TIMER: lambda settings: scheduled_operations_blueprint(settings.schedules, settings.retries),
}
"""Every source by its name, with what makes its blueprint."""


def _check_schedules(settings: IntakeSettings) -> None:
    problems: list[Problem] = []
    for scheduled in settings.schedules:
        try:
            intake().operation_of(run_of(scheduled, clock.now()))
        except InvalidInputError as error:
            place = f"{SCHEDULED_OPERATIONS.name}/operations/{scheduled.name}"
            problems.extend(Problem(place + each.pointer, each.detail) for each in error.problems)
    if problems:
        raise SettingsError(tuple(problems))
