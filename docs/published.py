"""The pages as the site has them: those of docs/ with what is made from the code, and the sidebar."""

from collections.abc import Callable, Mapping
from typing import Final

import docs.api_reference
import docs.settings_reference

MADE: Final[Mapping[str, Callable[[str], str]]] = {
    "http-api": docs.api_reference.reference,
    "settings": docs.settings_reference.reference,
}
"""Pages with parts that are made, by the name of the file without its ending, and what makes them."""

_BELOW: Final = {
    "quick-start": "tutorial\nrecipes",
    "adopting": "installing-elsewhere",
    "dead-letters": "alerts",
    "sources": "outbox",
    "operating": "dashboard\nfinding\nretryctl\nobservability",
    "deploying": "security",
    "http-api": "api",
    "decisions/README": "*",
}
"""What the sidebar shows below a page."""


def published(name: str, text: str) -> str:
    """Return the Markdown of a page, complete.

    Args:
        name: Its path below docs/, without the ending: `decisions/debounce`.
        text: What the file holds.
    """
    make = MADE.get(name)
    return text if make is None else make(text)


def contents_below(name: str) -> str:
    """Return the contents that Sphinx needs for the pages below a page; empty where there are none."""
    below = _BELOW.get(name)
    return "" if below is None else f"\n\n```{{toctree}}\n:hidden:\n:glob:\n\n{below}\n```\n"
