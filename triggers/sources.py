"""Which sources this app has: those whose app settings are there."""

import os
import sys
from typing import Any, Final, TextIO

import azure.durable_functions as df
from azure.functions.decorators.kafka import BrokerAuthenticationMode, BrokerProtocol

from engine.problem import InvalidInputError, Problem
from stores import clock
from stores.intake_settings import IntakeSettings, intake_settings
from stores.settings import SettingsError
from triggers import enqueued_operations, event_grid, operations_queue, service_bus
from triggers.cosmos_db import cosmos_db_blueprint
from triggers.event_hubs import event_hubs_blueprint
from triggers.intake import intake
from triggers.kafka import kafka_blueprint
from triggers.scheduled_operations import run_of, scheduled_operations_blueprint

KAFKA_OPTIONS: Final = {
    "KAFKA_CONSUMER_GROUP": "consumer_group",
    "KAFKA_USERNAME": "username",
    "KAFKA_PASSWORD": "password",
}
"""Settings that become properties of the trigger, all optional."""

KAFKA_CHOICES: Final = {
    "KAFKA_PROTOCOL": ("protocol", BrokerProtocol),
    "KAFKA_AUTHENTICATION": ("authentication_mode", BrokerAuthenticationMode),
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
    found = [operations_queue.blueprint, enqueued_operations.blueprint, event_grid.blueprint]
    if "service_bus" in settings.places:
        found.append(service_bus.blueprint)
    if "event_hubs" in settings.places:
        found.append(event_hubs_blueprint(retries, os.environ.get("EVENT_HUB_CONSUMER_GROUP") or None))
    if "cosmos_db" in settings.places:
        found.append(cosmos_db_blueprint(retries, os.environ.get("COSMOS_LEASE_CONTAINER") or None))
    if "kafka" in settings.places:
        found.append(kafka_blueprint(retries, _kafka_options()))
    if settings.schedules:
        found.append(scheduled_operations_blueprint(settings.schedules, retries))
    return found


def _kafka_options() -> dict[str, Any]:
    """Let the trigger read its settings itself, so that a password stays out of the function's metadata."""
    options = {option: f"%{name}%" for name, option in KAFKA_OPTIONS.items() if os.environ.get(name)}
    problems = []
    for name, (option, words) in KAFKA_CHOICES.items():
        if word := os.environ.get(name, "").upper():
            options[option] = word
            if word not in words.__members__:
                known = ", ".join(words.__members__)
                problems.append(Problem(name, f"must be one of {known}, not {word}"))
    if problems:
        raise SettingsError(tuple(problems))
    return options


def _check_schedules(settings: IntakeSettings) -> None:
    problems: list[Problem] = []
    for scheduled in settings.schedules:
        try:
            intake().operation_of(run_of(scheduled, clock.now()))
        except InvalidInputError as error:
            place = f"SCHEDULED_OPERATIONS/operations/{scheduled.name}"
            problems.extend(Problem(place + each.pointer, each.detail) for each in error.problems)
    if problems:
        raise SettingsError(tuple(problems))
