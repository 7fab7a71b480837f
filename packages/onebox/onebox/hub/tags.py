"""Tags as the store keeps them: a JSON object, or nothing."""

import json
from collections.abc import Mapping


def tags_from(stored: str | None) -> dict[str, str]:
    """Return stored tags."""
    tags: dict[str, str] = json.loads(stored) if stored else {}
    return tags


def tags_to(tags: Mapping[str, str]) -> str | None:
    """Return tags as they are stored; none at all is None."""
    return json.dumps(dict(tags)) if tags else None
