"""Which sources this app has: those whose app settings are there."""

import os
import sys
from collections.abc import Mapping
from typing import Any, Final, TextIO

import azure.durable_functions as df

from durable_retry import clock
from durable_retry.engine.base.validation import InvalidInputError, Problem
from durable_retry.services.intake import intake
from durable_retry.settings.app import SettingsError
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
from durable_retry.settings.intake import IntakeSettings, intake_settings
from durable_retry.settings.setting import Text
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
"""The same, of few words."""


def source_blueprints(stderr: TextIO | None = None) -> list[df.Blueprint]:
    """Return a blueprint for each source that has its settings; comes after `load_app`.

    Args:
        stderr: Where mistakes are listed; None means the process's own.

    Raises:
        SettingsError: With every setting that is missing beside another, or has no usable value.
    """
    try:
        settings = intake_settings()
        _check_schedules(settings)
        return _blueprints(settings)
    except SettingsError as error:
        print(f"Durable Retry does not start.\n{error}", file=stderr or sys.stderr)
        raise


def _blueprints(settings: IntakeSettings) -> list[df.Blueprint]:
    retries = settings.retries
    found = [messages.blueprint]
    if messages.SERVICE_BUS in settings.places:
        found.append(messages.service_bus_blueprint)
    if EVENT_HUBS in settings.places:
        found.append(event_hubs_blueprint(retries, EVENT_HUB_CONSUMER_GROUP.get(os.environ)))
    if COSMOS_DB in settings.places:
        found.append(cosmos_db_blueprint(retries, COSMOS_LEASE_CONTAINER.get(os.environ)))
    if KAFKA in settings.places:
        found.append(kafka_blueprint(retries, _kafka_options()))
    if settings.schedules:
        found.append(scheduled_operations_blueprint(settings.schedules, retries))
    return found


def _kafka_options() -> dict[str, Any]:
    """Let the trigger read its settings itself, so that a password stays out of the function's metadata."""
    problems: list[Problem] = []
    read = {option: setting.reference for option, setting in KAFKA_OPTIONS.items() if setting.get(os.environ)}
    chosen = {option: setting.choice(os.environ, problems) for option, setting in KAFKA_CHOICES.items()}
    if problems:
        raise SettingsError(tuple(problems))
    return read | {option: word for option, word in chosen.items() if word}


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
