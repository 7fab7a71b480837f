"""Dead letters to look at."""

from typing import Any

from tests.e2e.system import System


def dead_letter(system: System, key: str, path: str = "/status/422", **more: Any) -> str:
    document = system.until(system.accepted(key, path, **more), "dead_lettered")
    found: str = document["dead_letter"]["id"]
    return found


def shown(system: System, dead_letter_id: str) -> dict[str, Any]:
    document: dict[str, Any] = system.client.get(f"/api/dead-letters/{dead_letter_id}").json()
    return document
