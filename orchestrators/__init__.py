"""Durable orchestrations: they carry out decisions that `durable_retry.engine` makes."""

import azure.durable_functions as df

from . import batch, call, diagnosis, operation, order_lane, outbox, saga, upkeep, wake_waiting


def blueprints() -> list[df.Blueprint]:
    """Return the blueprint of each module, to register in the function app."""
    modules = (batch, call, diagnosis, operation, order_lane, outbox, saga, upkeep, wake_waiting)
    return [module.blueprint for module in modules]
