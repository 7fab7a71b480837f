"""The ids of the entities that hold what a dependency's calls share: its circuits and its limiter."""

from typing import Final

from durabletask.entities import EntityInstanceId

from durable_retry.base.names import CALL_LIMITER, CIRCUIT_BREAKER
from durable_retry.rules.operations.keys import hash_of_key
from durable_retry.settings.configuration import function_name

KEY_MARK: Final = "~"
"""Between a dependency and the hash of a limit key in an entity's key; no name of a dependency has it."""


def circuit_id(dependency: str, limit_key: str | None = None) -> EntityInstanceId:
    """Return the entity id of a dependency's circuit, or of its circuit for a limit key, which is hashed."""
    key = dependency if limit_key is None else f"{dependency}{KEY_MARK}{hash_of_key(limit_key)}"
    return EntityInstanceId(function_name(CIRCUIT_BREAKER), key)


def dependency_of(entity_key: str) -> str:
    """Return the dependency of a circuit, by the key of its entity."""
    return entity_key.partition(KEY_MARK)[0]


def limiter_id(dependency: str) -> EntityInstanceId:
    return EntityInstanceId(function_name(CALL_LIMITER), dependency)
