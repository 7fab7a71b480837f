"""Durable orchestrations: they carry out decisions that `durable_retry.engine` makes."""

import azure.durable_functions as df

from . import batch, bulk, call, diagnosis, operation, order_lane, outbox, saga, upkeep, wake_waiting


def blueprints() -> dict[str, df.Blueprint]:
    """Return the blueprint of each module by its name, to register in the function app."""
    return {
        module.__name__.rpartition(".")[2]: module.blueprint
        for module in (
            batch,
            bulk,
            call,
            diagnosis,
            operation,
            order_lane,
            outbox,
            saga,
            upkeep,
            wake_waiting,
        )
    }
