"""Access keys, asked for with `--auth`: as in Azure, a key opens what its level allows.

Without `--auth` everything is open, as Core Tools leave it on a developer's machine.
"""

import hmac
import json
import secrets
from enum import StrEnum
from pathlib import Path

from starlette.requests import Request

_HEADER = "x-functions-key"
_PARAMETER = "code"
_KEY_BYTES = 32
_OWNER_ONLY = 0o600


class Level(StrEnum):
    """What a request needs to be let in."""

    ANONYMOUS = "anonymous"
    FUNCTION = "function"
    SYSTEM = "system"
    ADMIN = "admin"


class Keys:
    """The keys of one data folder: one per level; the master key of level admin opens everything."""

    def __init__(self, values: dict[Level, str] | None) -> None:
        """Hold keys.

        Args:
            values: A key per level but anonymous; None lets everybody in.
        """
        self._values = values

    @classmethod
    def kept_in(cls, path: Path) -> "Keys":
        """Read the keys from a file that only its owner can read; make it when it is missing."""
        levels = (Level.FUNCTION, Level.SYSTEM, Level.ADMIN)
        if not path.exists():
            path.touch(mode=_OWNER_ONLY)
            fresh = {level.value: secrets.token_urlsafe(_KEY_BYTES) for level in levels}
            path.write_text(json.dumps(fresh, indent=1))
        content = json.loads(path.read_text())
        return cls({level: str(content[level.value]) for level in levels})

    @property
    def system(self) -> str | None:
        """The key of the extensions' webhooks; None when everything is open."""
        return None if self._values is None else self._values[Level.SYSTEM]

    def let_in(self, request: Request, level: Level) -> bool:
        """Tell whether a request may do what needs this level."""
        if self._values is None or level is Level.ANONYMOUS:
            return True
        given = request.headers.get(_HEADER) or request.query_params.get(_PARAMETER) or ""
        wanted = (self._values[level], self._values[Level.ADMIN])
        # Both are compared in full, whatever the first says: the time taken tells nothing.
        matches = [hmac.compare_digest(given.encode(), key.encode()) for key in wanted]
        return any(matches)
