"""Durable orchestrations: they carry out decisions that `durable_retry.rules` makes."""

from importlib import import_module

import azure.durable_functions as df

from durable_retry.plugins import plugins

from . import operation


def blueprints() -> list[df.Blueprint]:
    """Return the blueprint of each module, to register in the function app."""
    added = (import_module(f"{__name__}.{name}") for plugin in plugins() for name in plugin.orchestrators)
    return [module.blueprint for module in (operation, *added)]
