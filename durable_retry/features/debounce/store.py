"""The entity that an operation with a debounce key asks."""

from durabletask.entities import EntityInstanceId

from durable_retry.features.debounce.names import DEBOUNCE
from durable_retry.features.debounce.rules import Debounce
from durable_retry.settings.configuration import function_name


def debounce_id(debounce: Debounce) -> EntityInstanceId:
    """Return the id of the entity."""
    return EntityInstanceId(function_name(DEBOUNCE), debounce.entity)
