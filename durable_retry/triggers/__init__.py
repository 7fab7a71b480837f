"""Every way in: HTTP routes, sources of messages, timers."""

import azure.durable_functions as df

from durable_retry.engine.base.names import QUEUE_SOURCE
from durable_retry.engine.base.validation import Problem
from durable_retry.plugins import sources
from durable_retry.settings.configuration import registration
from durable_retry.settings.group import SettingsError
from durable_retry.triggers import queue, timers


def blueprints() -> list[df.Blueprint]:
    """Return the blueprints of the timers, and of each source that is wanted and has its settings.

    Comes after `load_app`.

    Raises:
        SettingsError: With every source that the app's code names and that lacks its settings, and what these
            say wrong.
    """
    chosen, problems = registration(), list[Problem]()
    wanted: list[df.Blueprint] = [timers.blueprint]
    if chosen.wants(QUEUE_SOURCE):
        wanted.append(queue.blueprint)
    for name, source in sources().items():
        try:
            blueprint = source.blueprint()
        except SettingsError as error:
            problems.extend(error.problems)
            continue
        if blueprint is not None and chosen.wants(name):
            wanted.append(blueprint)
        elif blueprint is None and name in (chosen.sources or ()):
            needed = " and ".join(source.needs)
            problems.append(Problem("register(sources)", f"{name} needs the app setting {needed}"))
    if problems:
        raise SettingsError(problems)
    return wanted
