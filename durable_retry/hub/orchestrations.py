"""The orchestrators of this engine, and those of what plugs in, with what upkeep knows of their instances."""

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
    added = (each for plugin in plugins() for each in plugin.orchestrations)
    return {each.name: each for each in (*CORE, *added)}


@cache
def watched_names() -> frozenset[str]:
    """Return the names of those whose instances upkeep looks after."""
    return frozenset(each.name for each in orchestrations().values() if each.is_watched)


@cache
def listed_names() -> tuple[str, ...]:
    """Return the names of those whose instances are in a list by time."""
    return tuple(sorted(each.name for each in orchestrations().values() if each.is_listed))


def start_from_entity(entity: EntityContext, name: str, given: dict[str, Any]) -> None:
    """Start an orchestration that tells somebody something for an entity, which sends no event itself."""
    instance_id = f"{orchestrations()[name].prefix}{uuid.uuid4().hex}"
    entity.schedule_new_orchestration(function_name(name), given, instance_id=instance_id)
