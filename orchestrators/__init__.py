"""Durable orchestrations: they carry out decisions that `durable_retry.engine` makes."""

import azure.durable_functions as df

from orchestrators import batch, bulk_replay, operation, outbox, saga, wake_waiting


def blueprints() -> list[df.Blueprint]:
    """Return the blueprint of each module, to register in the function app."""
    modules = (batch, bulk_replay, operation, outbox, saga, wake_waiting)
    return [module.blueprint for module in modules]
