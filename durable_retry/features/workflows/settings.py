"""App setting of batches."""

import os
from functools import cache
from typing import ClassVar

from durable_retry.settings.group import SettingsGroup, setting


class WorkflowSettings(SettingsGroup):
    """How large a batch may be."""

    heading: ClassVar[str] = "Batches and sagas"

    max_batch_bytes: int = setting("The largest body of a batch.", 8 * 1024 * 1024, unit="bytes", least=1)


@cache
def workflow_settings() -> WorkflowSettings:
    """Return this process's settings, read once; see `SettingsGroup.read`."""
    return WorkflowSettings.read(os.environ)
