"""The activities; what one of them remembers belongs to the app that it is made for."""

from typing import Any

from tests.support.onebox.durable_app import App


def double(value: Any) -> Any:
    return value * 2


def fail(message: Any) -> Any:
    raise ValueError(message)


def activities() -> App:
    """The activities of a new app."""
    part = App()
    part.activity(double)
    part.activity(fail)
    seen: list[Any] = []

    @part.activity
    def fail_once(value: Any) -> Any:
        if value not in seen:
            seen.append(value)
            raise ValueError("first time")
        return value

    return part
