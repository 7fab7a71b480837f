"""The sources of messages of this app: its queue, and those of plugins that have their settings."""

import azure.durable_functions as df

from durable_retry.base.names import QUEUE_SOURCE
from durable_retry.base.validation import Problem
from durable_retry.intake import queue_triggers
from durable_retry.plugins import sources
from durable_retry.settings.configuration import registration
from durable_retry.settings.group import SettingsError


def source_blueprints() -> list[df.Blueprint]:
    """Return the blueprint of each source that is wanted and has its settings.

    Comes after `load_app`.

    Raises:
        SettingsError: Lists every source that the app's code names and that lacks its settings, and every
            wrong setting.
    """
    chosen, problems = registration(), list[Problem]()
    wanted: list[df.Blueprint] = [queue_triggers.blueprint] if chosen.wants(QUEUE_SOURCE) else []
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
