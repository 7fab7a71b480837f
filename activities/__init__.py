"""Durable activities: one thin file each, and the app's own handlers."""

import azure.durable_functions as df

from activities import attempt, batch, bulk_replay, commit, dead_letter, outbox, submit, wake_waiting


def blueprints() -> list[df.Blueprint]:
    """Return the blueprint of each module, to register in the function app."""
    modules = (attempt, batch, bulk_replay, commit, dead_letter, outbox, submit, wake_waiting)
    return [module.blueprint for module in modules]
