"""The pages that are made from the code, in part, and the sidebar of the site.

python -m docs.published        # writes the tables of the reference into its pages, as `make docs` does
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import docs.api_reference
import docs.settings_reference
import docs.signatures_reference
from docs.tables import with_tables
from durable_retry.plugins import FEATURES, features, installed, keys_added_by, names_added_by

TABLES: Final[Mapping[str, Callable[[str], str]]] = {
    "settings": docs.settings_reference.reference,
    "http-api": docs.api_reference.routes,
    "api": lambda text: with_tables(text, docs.signatures_reference.tables(text)),
}
"""Pages with tables that are committed, by the name of the file without its ending, and what renews them."""

MADE: Final[Mapping[str, Callable[[str], str]]] = {
    "http-api": docs.api_reference.reference,
    "api": docs.signatures_reference.published,
}
"""Pages that have more on the site, and what makes it."""

_BELOW: Final = {
    "quick-start": ("tutorial", "recipes"),
    "adopting": ("platform-or-engine", "coming-from", "installing-elsewhere"),
    "policies": ("circuit",),
    "handlers": ("batches-and-sagas",),
    "sources": ("outbox",),
    "operating": ("dashboard", "finding", "alerts", "retryctl", "observability"),
    "deploying": ("security", "sizing"),
    "settings": ("http-api", "api"),
    "faq": ("words",),
    "architecture": ("failure-modes", "dependencies"),
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


def is_in_sidebar(name: str) -> bool:
    """Whether a page has an entry of its own; a decision is reached from their index."""
    return not name.startswith("decisions/") or name == "decisions/README"


def contents_below(name: str) -> str:
    """Return the contents that Sphinx needs for the pages below a page; empty where there are none."""
    below = "\n".join(_BELOW.get(name, ()))
    return below and f"\n\n```{{toctree}}\n:hidden:\n\n{below}\n```\n"


NAMES: Final = Path(FEATURES.replace(".", "/"), "names.json")


def names_of_features() -> str:
    """Return the app settings, keys of a dependency and members that each feature adds, as JSON.

    Also the keys that other distributions add: some of their settings are Azure's own, and refuse no start.
    """
    names = {feature.name: sorted(names_added_by(feature)) for feature in features()}
    names |= {plugin.name: sorted(keys_added_by(plugin)) for plugin in installed()}
    return f"{json.dumps({name: own for name, own in names.items() if own}, indent=2)}\n"


def write_tables() -> None:
    """Renew the tables of the reference, and the names that features add."""
    NAMES.write_text(names_of_features(), encoding="utf-8")
    for name, renewed in TABLES.items():
        page = Path(__file__).with_name(f"{name}.md")
        page.write_text(renewed(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write_tables()
