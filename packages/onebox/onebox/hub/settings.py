"""How much the task hub does at once, and which versions of orchestrations this app may run.

Source of the versions (host.json's `version...` keys): "Orchestration versioning in Durable Functions",
Microsoft Learn; the dispatcher of DurableTask.Core.
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from onebox.hub.model import TERMINAL, Status

_NUMBERS = re.compile(r"\d+(\.\d+){0,3}", re.ASCII)


class _AnyCase(StrEnum):
    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        """Find a member as the host's configuration does: without regard to case."""
        return next((each for each in cls if each.value.lower() == str(value).lower()), None)


class VersionMatch(_AnyCase):
    """The versions that are run: all, exactly the app's own, or none newer than it."""

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
        default: The version of instances started without one, sub-orchestrations too, and the app's own; None
            for none.
        match: The other versions that it runs.
        failure: What becomes of the rest.
    """

    default: str | None = None
    match: VersionMatch = VersionMatch.NONE
    failure: VersionFailure = VersionFailure.REJECT

    def admits(self, version: str | None) -> bool:
        """Return whether the app may run an instance of this version; None is one without."""
        match self.match:
            case VersionMatch.NONE:
                return True
            case VersionMatch.STRICT:
                return (version or "") == (self.default or "")
            case VersionMatch.CURRENT_OR_OLDER:
                return not is_newer(version or "", self.default or "")


def is_newer(version: str, than: str) -> bool:
    """Return whether a version is newer; none ("") is older than any.

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


@dataclass(frozen=True)
class AzureTerms:
    """How often something goes as it may go on Azure Storage, of one.

    Attributes:
        seed: The draws follow from it, in their order; which work meets which depends on what else goes on.
        lost: Turns and batches whose messages go out and whose state is not stored.
        repeated: Messages that come again, up to five seconds later.
        overtaken: Messages that come up to a second late.
        doubled: Activities that run twice at once.
        raced: Starts that leave time between the look and the write.
        died: Activities and batches whose worker dies, before the function has run or after it.
        unanswered: Messages and activities that are fetched, and whose fetch has no answer.
        skew_seconds: By so much a machine's clock may be wrong, either way.
        control_hidden_seconds: How long a message that was fetched stays hidden unless it is dealt with.
        work_hidden_seconds: How long an activity does.
    """

    seed: int
    lost: float = 0.03
    repeated: float = 0.05
    overtaken: float = 0.1
    doubled: float = 0.02
    raced: float = 0.3
    died: float = 0.0
    unanswered: float = 0.0
    skew_seconds: float = 15.0
    control_hidden_seconds: float = 0.0
    work_hidden_seconds: float = 0.0


@dataclass(frozen=True)
class HubSettings:
    """Limits of one hub.

    Attributes:
        max_turns: Orchestrator turns in flight, from taken to committed (at least 1).
        max_batches: Entity batches in flight, likewise (at least 1).
        max_activities: Activities in flight, likewise (at least 1).
        max_batch_operations: Operations handed to an entity in one batch (at least 1).
        cache_bytes: Serialised history and input kept in memory for live instances (0 keeps none).
        versioning: The app's version, and what it does with instances of another.
        replaceable: Statuses in which an instance gives way to a start under its id that says nothing of it.
        drops_entity_messages: Whether messages of orchestrations to entities are lost, as on Azure Storage
            while it orders them and they carry no timestamp.
        azure: The weaker terms of Azure Storage, for tests (see `azure_terms`); None keeps the hub's own.
        head_start_seconds: How long what a client's transaction wakes waits (at least 0). The client has its
            answer before that takes the processor.
        ride_seconds: How long workers' transactions may wait for a client's, to share its commit; 0 for not
            at all.
        archive_after_seconds: From the end of instances until they are packed (at least 0).
        stop_seconds: How long `stop` lets running invocations finish before it gives them back.
    """

    max_turns: int = 64
    max_batches: int = 64
    max_activities: int = 64
    max_batch_operations: int = 256
    cache_bytes: int = 64 * 1024 * 1024
    versioning: Versioning = field(default_factory=Versioning)
    replaceable: frozenset[Status] = TERMINAL
    drops_entity_messages: bool = False
    azure: AzureTerms | None = None
    head_start_seconds: float = 0.0
    ride_seconds: float = 0.0
    archive_after_seconds: float = 5.0
    stop_seconds: float = 5.0
