"""Durable orchestrations: they carry out decisions that `durable_retry.engine` makes."""

import azure.durable_functions as df

from . import bulk_replay, operation, outbox, retention, wake_waiting, workflows


def blueprints() -> list[df.Blueprint]:
    """Return the blueprint of each module, to register in the function app."""
    modules = (bulk_replay, operation, outbox, retention, wake_waiting, workflows)
    return [module.blueprint for module in modules]
