"""App setting of what a timer starts."""

import os
from functools import cache
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator

from durable_retry.base.documents import read_toml
from durable_retry.features.schedules.rules import ScheduledOperation, parse_schedules
from durable_retry.settings.configuration import APP_ROOT
from durable_retry.settings.group import SettingsGroup, setting


def _parsed_schedules(text: Any) -> Any:
    """Read the setting's TOML, or the file that it names."""
    if not isinstance(text, str) or not text.strip():
        return () if isinstance(text, str) else text
    try:
        return parse_schedules(_content_of(text))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"names a file that cannot be read: {error}") from None


def _content_of(text: str) -> str:
    """Return the setting itself, or the content of the file that it names (a file name is not valid TOML)."""
    name = text.strip()
    if "\n" in name or not name.endswith(".toml"):
        return text
    try:
        read_toml(name)
    except ValueError:
        return (APP_ROOT / name).read_text(encoding="utf-8")
    return text


class ScheduleSettings(SettingsGroup):
    """The operations that a timer starts."""

    heading: ClassVar[str] = "Schedules"

    scheduled_operations: Annotated[tuple[ScheduledOperation, ...], BeforeValidator(_parsed_schedules)] = (
        setting("TOML of operations with schedules, or the name of a `.toml` file with it.", ())
    )


@cache
def schedules() -> tuple[ScheduledOperation, ...]:
    """Return this process's operations with schedules, read once; see `SettingsGroup.read`."""
    return ScheduleSettings.read(os.environ).scheduled_operations
