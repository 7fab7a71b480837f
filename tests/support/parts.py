"""The app's own orchestrators and entities by their durable names, for task hubs that tests run."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

from durable_retry.base import names
from durable_retry.plugins import features
from durable_retry_console.bulk import names as bulk_names
from durable_retry_console.bulk.orchestration import bulk_action
from entities.circuit_breaker import CircuitBreaker
from entities.idempotency_record import IdempotencyRecord
from orchestrators import operation


def _orchestrators_of_features(*, after_operations: bool) -> Iterator[tuple[str, Any]]:
    """Yield those of features that look at what has not ended, or remove what has; or those of the others."""
    for feature in features():
        if bool(feature.look or feature.kept_for) is not after_operations:
            continue
        modules = [import_module(f"orchestrators.{module}") for module in feature.orchestrators]
        for each in feature.orchestrations:
            yield each.name, next(vars(module)[each.name] for module in modules if each.name in vars(module))


def _entities_of_features() -> Iterator[tuple[str, Any]]:
    for feature in features():
        for name in feature.entities:
            yield name, vars(import_module(f"entities.{name}"))[name.title().replace("_", "")]


OPERATIONS: Final[dict[str, Any]] = {
    names.OPERATION: operation.operation,
    **dict(_orchestrators_of_features(after_operations=True)),
}
AROUND_OPERATIONS: Final[dict[str, Any]] = {
    **dict(_orchestrators_of_features(after_operations=False)),
    bulk_names.BULK_ACTION: bulk_action,
}
ENTITIES: Final[dict[str, Any]] = {
    names.IDEMPOTENCY_RECORD: IdempotencyRecord,
    names.CIRCUIT_BREAKER: CircuitBreaker,
    **dict(_entities_of_features()),
}
