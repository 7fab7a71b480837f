"""The entity that decides which of several submissions with one debounce key runs."""

from durabletask.entities import EntityInstanceId

from durable_retry.engine.base.names import DEBOUNCE
from durable_retry.engine.operations.debounce import Debounce
from durable_retry.settings.configuration import function_name


def debounce_id(debounce: Debounce) -> EntityInstanceId:
    """Return the id of the entity that an operation with a debounce key asks."""
    return EntityInstanceId(function_name(DEBOUNCE), debounce.entity)
