"""Which orchestrations this app's code may run, by their version: host.json's `version...` keys.

Source: "Orchestration versioning in Durable Functions", Microsoft Learn; the dispatcher of DurableTask.Core.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

_NUMBERS = re.compile(r"\d+(\.\d+){0,3}")


class _AnyCase(StrEnum):
    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        """Find a member as the host's configuration does: without regard to case."""
        return next((each for each in cls if each.value.lower() == str(value).lower()), None)


class VersionMatch(_AnyCase):
    """Which versions are run: all, exactly the app's own, or none newer than it."""

    NONE = "None"
    STRICT = "Strict"
    CURRENT_OR_OLDER = "CurrentOrOlder"


class VersionFailure(_AnyCase):
    """What becomes of an instance that is not run: it waits for an app that may, or fails."""

    REJECT = "Reject"
    FAIL = "Fail"


@dataclass(frozen=True)
class Versioning:
    """The version of the app and what it does with others.

    Attributes:
        default: Of instances started without one, sub-orchestrations too, and the app's own; None for none.
        match: Which other versions it runs.
        failure: What becomes of the rest.
    """

    default: str | None = None
    match: VersionMatch = VersionMatch.NONE
    failure: VersionFailure = VersionFailure.REJECT

    def admits(self, version: str | None) -> bool:
        """Tell whether the app may run an instance of this version; None is one without."""
        match self.match:
            case VersionMatch.NONE:
                return True
            case VersionMatch.STRICT:
                return (version or "") == (self.default or "")
            case VersionMatch.CURRENT_OR_OLDER:
                return not is_newer(version or "", self.default or "")


def is_newer(version: str, than: str) -> bool:
    """Tell whether a version is newer; none ("") is older than any.

    Dotted numbers are compared as numbers, where 1.0 is older than 1.0.0; anything else as text, without
    regard to case.
    """
    if not version or not than:
        return bool(version)
    if _NUMBERS.fullmatch(version) and _NUMBERS.fullmatch(than):
        return _parts(version) > _parts(than)
    return version.lower() > than.lower()


def _parts(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]
