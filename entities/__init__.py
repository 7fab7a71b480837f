"""Durable entities: thin shells over the state machines in `durable_retry.rules`."""

from importlib import import_module

import azure.durable_functions as df

from durable_retry.plugins import plugins

from . import circuit_breaker, idempotency_record


def blueprints() -> list[df.Blueprint]:
    """Return the blueprint of each module, to register in the function app."""
    added = (import_module(f"{__name__}.{name}") for plugin in plugins() for name in plugin.entities)
    modules = (circuit_breaker, idempotency_record, *added)
    return [module.blueprint for module in modules]
