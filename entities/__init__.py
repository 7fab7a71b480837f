"""Durable entities: thin shells over the state machines in `durable_retry.engine`."""

import azure.durable_functions as df

from . import call_limiter, circuit_breaker, debounce, idempotency_record, order_lane


def blueprints() -> list[df.Blueprint]:
    """Return the blueprint of each module, to register in the function app."""
    modules = (call_limiter, circuit_breaker, debounce, idempotency_record, order_lane)
    return [module.blueprint for module in modules]
