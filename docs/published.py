"""The pages as the site publishes them: as they stand in docs/, with what is made from the code."""

from collections.abc import Callable, Mapping
from typing import Final

import docs.api_reference
import docs.settings_reference

MADE: Final[Mapping[str, Callable[[str], str]]] = {
    "http-api": docs.api_reference.reference,
    "settings": docs.settings_reference.reference,
}
"""Pages with parts that are made, by the name of the file without its ending, and what makes them."""


def published(name: str, text: str) -> str:
    """Return the Markdown of a page, complete.

    Args:
        name: Its path below docs/, without the ending: `concepts/idempotency`.
        text: What the file holds.
    """
    make = MADE.get(name)
    return text if make is None else make(text)
