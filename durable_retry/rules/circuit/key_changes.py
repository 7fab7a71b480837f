"""What the circuit of a dependency stores about the circuits of its limit keys."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from durable_retry.base.json_forms import JsonShape

KEPT_KEYS: Final = 50
"""Limit keys in a list of the latest, which workers read every second."""
KEPT_KEYS_BYTES: Final = 3_000


@dataclass(frozen=True, slots=True)
class KeyChange(JsonShape):
    """Signal `key_changed` to the circuit of a dependency: the circuit of a limit key must be read anew.

    Attributes:
        is_free: Whether it is closed, and no pause goes on.
    """

    limit_key: str
    is_free: bool


def latest_keys(keys: Iterable[str]) -> tuple[str, ...]:
    """Return the last of these keys: at most 50, and at most 3,000 bytes of JSON."""
    kept = list(keys)[-KEPT_KEYS:]
    while len(json.dumps(kept)) > KEPT_KEYS_BYTES:
        del kept[0]
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class KeyChanges(JsonShape):
    """The changes of the circuits of limit keys, so that a worker reads those alone that have changed."""

    count: int = 0  # how many there were ever
    latest: tuple[str, ...] = ()  # whose circuit changed, the latest change last, as far as they are kept

    def with_key(self, limit_key: str) -> "KeyChanges":
        return KeyChanges(self.count + 1, latest_keys((*self.latest, limit_key)))

    def concern(self, limit_key: str, seen: int) -> bool:
        """Whether one after the first `seen` is of this key; True where that is not known any more."""
        unseen = self.count - seen
        return not 0 <= unseen <= len(self.latest) or limit_key in self.latest[len(self.latest) - unseen :]


NO_KEY_CHANGES: Final = KeyChanges()
