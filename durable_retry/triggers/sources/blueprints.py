"""The sources of this app: those whose app settings are present."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import azure.durable_functions as df

from durable_retry import clock
from durable_retry.engine.base.names import QUEUE_SOURCE
from durable_retry.engine.base.validation import InvalidInputError, Problem
from durable_retry.services.sources import intake
from durable_retry.settings.configuration import Registration, registration
from durable_retry.settings.group import SettingsError
from durable_retry.settings.sources import REQUIREMENTS, TIMER, IntakeSettings, intake_settings
from durable_retry.triggers.sources import messages
from durable_retry.triggers.sources.messages import (
    COSMOS_DB,
    EVENT_HUBS,
    KAFKA,
    cosmos_db_blueprint,
    event_hubs_blueprint,
    kafka_blueprint,
)
from durable_retry.triggers.timers import run_of, scheduled_operations_blueprint

_KAFKA_SECRETS: Final = ("consumer_group", "username", "password")
# Optional properties of the trigger: those that it reads itself, and those with a few allowed values.
_KAFKA_CHOICES: Final = {"protocol": "kafka_protocol", "authentication_mode": "kafka_authentication"}


def source_blueprints() -> list[df.Blueprint]:
    """Return a blueprint for each source that has its settings; comes after `load_app`.

    Raises:
        SettingsError: With every setting that is missing beside another, or has no usable value.
    """
    settings, chosen = intake_settings(), registration()
    problems = [*_mistakes_in_chosen_sources(chosen, settings), *_mistakes_in_schedules(settings)]
    if problems:
        raise SettingsError(problems)
    names = (name for name in SOURCES if chosen.wants(name) and _has_settings(name, settings))
    return [SOURCES[name](settings) for name in names]


def _has_settings(source: str, settings: IntakeSettings) -> bool:
    if source == TIMER:
        return bool(settings.scheduled_operations)
    return source not in REQUIREMENTS or source in settings.places


def _mistakes_in_chosen_sources(chosen: Registration, settings: IntakeSettings) -> Iterator[Problem]:
    """Yield the sources that the app's code wants by name and that have no settings."""
    for source in sorted(chosen.sources or ()):
        if not _has_settings(source, settings):
            yield Problem("register(sources)", _needed_settings(source))


def _needed_settings(source: str) -> str:
    needed = ("scheduled_operations",) if source == TIMER else REQUIREMENTS[source].settings
    return f"{source} needs the app setting {' and '.join(map(IntakeSettings.name_of, needed))}"


def _kafka_options(settings: IntakeSettings) -> dict[str, Any]:
    # The trigger reads its settings itself, so that a password stays out of the function's metadata.
    read = {
        option: settings.reference_to(f"kafka_{option}")
        for option in _KAFKA_SECRETS
        if getattr(settings, f"kafka_{option}")
    }
    chosen = {option: getattr(settings, field) for option, field in _KAFKA_CHOICES.items()}
    return read | {option: word for option, word in chosen.items() if word}


SOURCES: Final[Mapping[str, Callable[[IntakeSettings], df.Blueprint]]] = {
    QUEUE_SOURCE: lambda _: messages.queue_blueprint,
    messages.EVENT_GRID: lambda _: messages.event_grid_blueprint,
    messages.SERVICE_BUS: lambda settings: messages.service_bus_blueprint(
        has_sessions=settings.service_bus_sessions == "true"
    ),
    EVENT_HUBS: lambda settings: event_hubs_blueprint(
        settings.intake_retries, settings.event_hub_consumer_group
    ),
    COSMOS_DB: lambda settings: cosmos_db_blueprint(settings.intake_retries, settings.cosmos_lease_container),
    KAFKA: lambda settings: kafka_blueprint(settings.intake_retries, _kafka_options(settings)),
    TIMER: lambda settings: scheduled_operations_blueprint(
        settings.scheduled_operations, settings.intake_retries
    ),
}
"""Every source by its name, with what makes its blueprint."""


def _mistakes_in_schedules(settings: IntakeSettings) -> Iterator[Problem]:
    for scheduled in settings.scheduled_operations:
        try:
            intake().operation_of(run_of(scheduled, clock.now()))
        except InvalidInputError as error:
            place = f"{settings.name_of('scheduled_operations')}/operations/{scheduled.name}"
            yield from (problem.below(place) for problem in error.problems)
