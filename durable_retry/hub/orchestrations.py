"""The orchestrators of this engine, and those of what plugs in, with what upkeep knows of their instances."""

from collections.abc import Mapping
from functools import cache
from typing import Final

from durable_retry.base.names import (
    OPERATION,
    RETENTION,
    STARTED_OPERATION,
)
from durable_retry.hub.task_hub import ID_PREFIX
from durable_retry.plugins import Orchestration, plugins

CORE: Final = (
    Orchestration(name=OPERATION, prefix=ID_PREFIX),
    Orchestration(name=STARTED_OPERATION, prefix=ID_PREFIX),
    # A timer looks after it.
    Orchestration(name=RETENTION, prefix=f"{RETENTION}-", is_watched=False),
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
