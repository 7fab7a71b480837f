"""Refusals and failures that more than one layer raises or handles; those of the rules are in their modules.

An invalid input raises a `base.validation.InvalidInputError`.

Storage that does not answer raises an `azure.core.exceptions.AzureError`.
"""

from typing import Final


class TaskHubUnavailableError(Exception):
    """The task hub did not answer, or refused; it may succeed later."""


class InstanceEndedError(Exception):
    """The instance does not take events any more: it has ended, or was purged."""


class StorageRefusedError(Exception):
    """The storage refused a change for what it is; the same change would be refused again."""


class MessageRefusedError(Exception):
    """The service refused this message permanently; sending it again cannot succeed."""


class NoSuchDeadLetterError(LookupError):
    """No dead letter has this id."""


class NothingToReplayError(LookupError):
    """What a dead letter is about is not there any more."""


class UnreadableDeadLetterError(Exception):
    """The dead letter cannot be read, so it is not changed."""


class ContendedError(Exception):
    """Other processes kept changing the same row."""


class NoSuchOperationError(LookupError):
    """There is no operation of this id."""

    def __init__(self) -> None:
        super().__init__("there is no such operation")


class WrongOperationStateError(Exception):
    """The state of the operation does not allow it; the text is a clause that says so."""


class OverloadedError(Exception):
    """A submission is refused for now; the text says why, and the same request may be sent again later."""

    retry_after_seconds: int | None = None  # after how many, at least 1; None where that is not known


class CircuitOpenError(OverloadedError):
    """An operation that does not wait for an open circuit is refused; the text says why it is open."""

    def __init__(self, detail: str, retry_after_seconds: int) -> None:
        super().__init__(detail)
        self.retry_after_seconds = retry_after_seconds


class KeyTakenError(Exception):
    """The key stands for another request by now."""


class StillRunningError(Exception):
    """The operation is running, so that this dead letter cannot be replayed now."""


class NoSuchDependencyError(LookupError):
    """There is no dependency of this name."""


REFUSED_STATUSES: Final = (400, 404, 409, 412, 413)
"""A change that is wrong in itself; 401, 403 and 429 are the account's trouble and may pass."""
