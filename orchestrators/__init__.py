"""Durable orchestrations: they carry out decisions that `durable_retry.engine` makes."""

import azure.durable_functions as df

from . import bulk, diagnosis, operation, order_lane, outbox, upkeep, wake_waiting, workflows


def blueprints() -> dict[str, df.Blueprint]:
    """Return the blueprint of each module by its name, to register in the function app."""
    return {
        "bulk": bulk.blueprint,
        "diagnosis": diagnosis.blueprint,
        "operation": operation.blueprint,
        "order_lane": order_lane.blueprint,
        "outbox": outbox.blueprint,
        "upkeep": upkeep.blueprint,
        "wake_waiting": wake_waiting.blueprint,
        "workflows": workflows.blueprint,
    }
