"""Durable orchestrations: they carry out decisions that `durable_retry.engine` makes."""

import azure.durable_functions as df

from . import bulk, diagnosis, operation, order_lane, outbox, upkeep, wake_waiting, workflows


def blueprints() -> dict[str, df.Blueprint]:
    """Return the blueprint of each module by its name, to register in the function app."""
    return {
        each.__name__.rpartition(".")[2]: each.blueprint
        for each in (bulk, diagnosis, operation, order_lane, outbox, upkeep, wake_waiting, workflows)
    }
