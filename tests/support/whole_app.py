"""What an app has and refuses, with the features that are there; loads the product as a start does."""

import os
import pkgutil
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import azure.durable_functions as df

import durable_retry
from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.plugins import plugins
from durable_retry.rules.operations.request import parse_operation
from durable_retry.runtime.deferred import imported, unimportable
from durable_retry.settings.mistakes import StartError


def shown(
    file: Path, members: dict[str, None], settings: Mapping[str, str]
) -> tuple[set[str], dict[str, str]]:
    """Return the functions of the app, and what is wrong where all that any feature adds is used.

    Args:
        file: A dependencies file with every key.
        members: Every member of a submission.
        settings: Every app setting.
    """
    app = df.DFApp()
    durable_retry.register(app)
    for module in pkgutil.walk_packages(durable_retry.__path__, "durable_retry."):
        if module.name.split(".")[1] not in {"features", "handlers", "testing"}:
            import_module(module.name)
    for plugin in plugins():
        for reference in (each for collection in plugin.collections for each in collection.routes):
            imported(reference)
    why_not = unimportable()
    assert not why_not, why_not
    os.environ |= settings
    problems: list[Problem] = []
    try:
        parse_operation(members)
    except InvalidInputError as error:
        problems += error.problems
    try:
        durable_retry.register(df.DFApp(), dependencies_file=str(file))
    except StartError as error:
        problems += error.problems
    told = {problem.pointer.rpartition(" ")[2]: problem.detail for problem in problems}
    return {function.get_function_name() or "" for function in app.get_functions()}, told
