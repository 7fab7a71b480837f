"""App settings of handlers."""

from typing import ClassVar

from durable_retry.settings.group import SettingsGroup, setting


class HandlerSettings(SettingsGroup):
    """Where the app's handlers are."""

    heading: ClassVar[str] = "Handlers"

    handlers: str = setting(
        "Modules with handlers, separated by commas, in addition to those that `function_app.py` names."
    )

    @property
    def modules(self) -> tuple[str, ...]:
        return tuple(filter(None, (name.strip() for name in self.handlers.split(","))))
