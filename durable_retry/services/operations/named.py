"""The ids that operations of one key can have."""

from typing import Final

from durable_retry.engine.base.names import OPERATIONS_QUEUE, QUEUE_SOURCE
from durable_retry.engine.operations.naming import (
    FIELDS_SCOPE,
    envelope_scope,
    explicit_scope,
    operation_id_for,
    source_scope,
)
from durable_retry.settings.sources import TIMER, intake_settings

_KAFKA: Final = "kafka"
_WITHOUT_PLACE: Final = (TIMER, "event_grid")
# Sources of our own (`services.workflows`, `console.alerts.watch`): their scopes have no place at all.
_OWN_SOURCES: Final = ("batch", "saga", "call", "watch")


def named_ids(name: str, tenant: str) -> list[str]:
    """Return the ids that an operation of this key can have, and the name itself, which may be an id."""
    places = dict(intake_settings().places)
    if _KAFKA in places:  # The scope of a message is its topic alone.
        places[_KAFKA] = places[_KAFKA].rpartition("/")[2]
    places |= {QUEUE_SOURCE: OPERATIONS_QUEUE, **dict.fromkeys(_WITHOUT_PLACE, "")}
    scopes = [scope_of(who) for scope_of in (explicit_scope, envelope_scope) for who in (tenant, "")]
    scopes += [FIELDS_SCOPE, *(f"source:{source}" for source in _OWN_SOURCES)]
    scopes += [source_scope(source, place) for source, place in places.items()]
    return [name, *(operation_id_for(scope, name) for scope in dict.fromkeys(scopes))]
