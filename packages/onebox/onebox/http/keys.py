"""Access keys, required with `--auth` only; without it all levels are open, as with Core Tools.

`keys.json` of a data folder holds a key per level, and under `named` what `onebox keys add` has made: keys of
the level of functions, each with a name and a role. The host lets them in. The app decides what a role may
do: it reads names and roles from the app setting `CALLER_KEYS`. There, as in the file, a key is its SHA-256.
"""

import hmac
import json
import re
import secrets
from collections.abc import MutableMapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request

from onebox import CannotStartError
from onebox.data_folder import write_private

_HEADER: Final = "x-functions-key"
_PARAMETER: Final = "code"
_KEY_BYTES: Final = 32
_NAMED: Final = "named"
_NAME: Final = re.compile(r"[A-Za-z0-9_.\-]{1,64}")
_CALLER_KEYS: Final = "CALLER_KEYS"


class SeveralKeysError(Exception):
    """A request has more than one key."""

    def __init__(self) -> None:
        super().__init__(f"The request has more than one key: send one, as {_HEADER} or as {_PARAMETER}.")


class Level(StrEnum):
    """The authorization levels of the host."""

    ANONYMOUS = "anonymous"
    FUNCTION = "function"
    SYSTEM = "system"
    ADMIN = "admin"


_KEYED: Final = (Level.FUNCTION, Level.SYSTEM, Level.ADMIN)


class KeyRole(StrEnum):
    """What the holder of a named key may do, as far as the app knows roles."""

    READER = "reader"
    OPERATOR = "operator"
    CALLER = "caller"


@dataclass(frozen=True, slots=True)
class NamedKey:
    """A key of the level of functions, known by its digest."""

    name: str
    role: KeyRole
    sha256: str


class Keys:
    """The keys of one data folder; the master key, of level admin, opens everything."""

    def __init__(self, values: dict[Level, str] | None, named: tuple[NamedKey, ...] = ()) -> None:
        """Hold keys.

        Args:
            values: A key per level but anonymous; None lets everybody in.
            named: Further keys of the level of functions.
        """
        self._values = values
        self._named = named

    @classmethod
    def kept_in(cls, path: Path) -> "Keys":
        """Read the keys from a file that only its owner can read; create it when it is missing or empty.

        An empty file is what a crash during creation leaves; no key of it can be in use.

        Raises:
            CannotStartError: The file holds something else.
        """
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        try:
            content = json.loads(text) if text.strip() else _create(path)
            named = tuple(
                NamedKey(_text(each["name"]), KeyRole(each["role"]), _text(each["sha256"]))
                for each in content.get(_NAMED, [])
            )
            return cls({level: _text(content[level.value]) for level in _KEYED}, named)
        except (ValueError, TypeError, KeyError, AttributeError):
            names = ", ".join(level.value for level in _KEYED)
            raise CannotStartError(
                f"{path} must be a JSON object with a key for each of {names}, and under {_NAMED} what "
                "`onebox keys add` has made; delete it to get new ones"
            ) from None

    def with_named(self, path: Path, name: str, role: KeyRole) -> str:
        """Add a key to the file and return it; only its digest is kept.

        Raises:
            CannotStartError: The name cannot be one, or has a key.
        """
        if not _NAME.fullmatch(name):
            raise CannotStartError(f"a key's name is 1 to 64 letters, digits and _ . -, not {name!r}")
        if any(each.name == name for each in self._named):
            raise CannotStartError(f"{path} has a key of {name}: delete its entry there to give it another")
        key = secrets.token_urlsafe(_KEY_BYTES)
        _write(path, self._values or {}, (*self._named, NamedKey(name, role, _digest(key))))
        return key

    def tell_app(self, environ: MutableMapping[str, str]) -> None:
        """Complete the app setting from which an app takes the names and roles of keys."""
        entries = [f"{each.name}={each.role}:{each.sha256}" for each in self._named]
        if entries:
            environ[_CALLER_KEYS] = " ".join([environ.get(_CALLER_KEYS, ""), *entries]).strip()

    @property
    def system(self) -> str | None:
        """The key of the extensions' webhooks; None when everything is open."""
        return None if self._values is None else self._values[Level.SYSTEM]

    def let_in(self, request: Request, level: Level) -> bool:
        """Return whether a request carries a key for this level.

        Raises:
            SeveralKeysError: It carries more than one.
        """
        if self._values is None or level is Level.ANONYMOUS:
            return True
        given = key_of(request)
        wanted = [_digest(self._values[each]) for each in (level, Level.ADMIN)]
        if level is Level.FUNCTION:
            wanted += [each.sha256 for each in self._named]
        # All are compared in full, whatever the first gives: the time taken reveals nothing.
        matches = [hmac.compare_digest(_digest(given), each) for each in wanted]
        return any(matches)


def key_of(request: Request) -> str:
    """Return the key of a request; "" without one.

    The host takes the first of several, and an app may take another one: so they are refused here.

    Raises:
        SeveralKeysError: It has several, or one in the header and in the query.
    """
    in_header = request.headers.getlist(_HEADER)
    # As in the host, in any case.
    in_query = [value for name, value in request.query_params.multi_items() if name.lower() == _PARAMETER]
    keys = [*in_header, *in_query]
    if len(keys) > 1 or any("," in key for key in keys):
        raise SeveralKeysError
    return keys[0] if keys else ""


def _create(path: Path) -> dict[str, Any]:
    return _write(path, {level: secrets.token_urlsafe(_KEY_BYTES) for level in _KEYED}, ())


def _write(path: Path, values: dict[Level, str], named: tuple[NamedKey, ...]) -> dict[str, Any]:
    content: dict[str, Any] = {level.value: key for level, key in values.items()}
    if named:
        content[_NAMED] = [asdict(each) for each in named]
    write_private(path, json.dumps(content, indent=1))
    return content


def _digest(key: str) -> str:
    return sha256(key.encode()).hexdigest()


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError
    return value
