"""Placeholders for app settings that a file of dependencies names and that a test lacks."""

import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any, Final

from durable_retry.base.documents import read_toml
from durable_retry.settings.configuration import read_settings_by

_REFERENCE: Final = re.compile(r"\$\{([^${}]+)\}")
_SECRET: Final = b64encode(bytes(32)).decode()


def with_placeholders(text: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings with a placeholder for each that a file names and that is missing.

    Args:
        text: TOML; what is no TOML names nothing.
        settings: Those that there are.
    """
    try:
        document = read_toml(text)
    except ValueError:
        return dict(settings)
    expanded = {
        name: _placeholder(name, key, value)
        for key, value in _strings_in(document)
        for name in _REFERENCE.findall(value)
    }
    return expanded | dict(settings)


def _placeholder(name: str, key: str, value: str) -> str:
    """Return a value that fits where a setting is used: a URL, a part of one, a webhook's secret, or text."""
    word = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if key == "secrets":
        return _SECRET
    if key.endswith("_url"):
        return f"http://{word}.test" if value.startswith("${") else word
    return f"placeholder-{word}"


def _strings_in(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield each string inside a value, with the key that it, or the list around it, stands under."""
    match value:
        case str():
            yield key, value
        case dict():
            for name, inner in value.items():
                yield from _strings_in(inner, name)
        case list():
            for inner in value:
                yield from _strings_in(inner, key)


def use_placeholders(**settings: str) -> None:
    """Let `function_app.py` be imported without the app's environment; called first, as in `conftest.py`.

        use_placeholders()

    Args:
        settings: App settings that must not be placeholders. Those of the environment are no placeholders.
    """
    read_settings_by(lambda text: with_placeholders(text, {**settings, **os.environ}))
