"""The orchestrators of the engine and of its plugins, with what upkeep needs to know of their instances."""

import uuid
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from durabletask.entities import EntityContext

from durable_retry.base.names import OPERATION, STARTED_OPERATION
from durable_retry.hub.task_hub import ID_PREFIX
from durable_retry.plugins import Orchestration, plugins
from durable_retry.settings.configuration import function_name

CORE: Final = (
    Orchestration(name=OPERATION, prefix=ID_PREFIX),
    Orchestration(name=STARTED_OPERATION, prefix=ID_PREFIX),
)


@cache
def orchestrations() -> Mapping[str, Orchestration]:
    """Return all, by their names."""
    added = (orchestration for plugin in plugins() for orchestration in plugin.orchestrations)
    return {orchestration.name: orchestration for orchestration in (*CORE, *added)}


@cache
def watched_names() -> frozenset[str]:
    """Return the names of those whose instances upkeep looks after."""
    return frozenset(name for name, declared in orchestrations().items() if declared.is_watched)


@cache
def listed_names() -> tuple[str, ...]:
    """Return the names of those whose instances are in a list by time."""
    return tuple(sorted(name for name, declared in orchestrations().items() if declared.is_listed))


def start_from_entity(entity: EntityContext, name: str, input_: dict[str, Any]) -> None:
    """Start an orchestration that sends events for an entity, since entities cannot send any."""
    instance_id = f"{orchestrations()[name].prefix}{uuid.uuid4().hex}"
    entity.schedule_new_orchestration(function_name(name), input_, instance_id=instance_id)
