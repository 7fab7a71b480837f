"""Operations that a timer starts, as SCHEDULED_OPERATIONS says."""

from typing import Final

from durable_retry.plugins import Plugin

PLUGIN: Final = Plugin(
    name="schedules",
    settings=("durable_retry.features.schedules.settings:ScheduleSettings",),
    sources="durable_retry.features.schedules.triggers:SOURCES",
)
