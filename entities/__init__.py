"""Durable entities: thin shells over the state machines in `durable_retry.engine`."""

import azure.durable_functions as df

from . import call_limiter, circuit_breaker, debounce, idempotency_record, order_lane


def blueprints() -> dict[str, df.Blueprint]:
    """Return the blueprint of each module by its name, to register in the function app."""
    return {
        module.__name__.rpartition(".")[2]: module.blueprint
        for module in (call_limiter, circuit_breaker, debounce, idempotency_record, order_lane)
    }
