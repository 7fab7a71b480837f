"""Failures of what the app stands on, for every layer above the stores: the task hub, tables and queues.

    TaskHubUnavailableError      the task hub did not answer; it may succeed later
    InstanceEndedError           the orchestration is over
    StorageRefusedError          the same change would be refused again
    MessageRefusedError          the same message would be refused again
    NoSuchDeadLetterError        LookupError
    UnreadableDeadLetterError    nobody can read the row
    NoSuchEventError             LookupError
    └── UnreadableEventError     nobody can read the row
    ContendedError               others keep changing the same row

That storage does not answer is an `azure.core.exceptions.AzureError`.
"""

from typing import Final

from azure.core.exceptions import AzureError, HttpResponseError


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


class NoSuchEventError(LookupError):
    """No event of this id exists: never committed, or deleted by retention."""


class UnreadableEventError(NoSuchEventError):
    """The row of the event cannot be read, so nothing is done to it; the message says why."""


class UnreadableDeadLetterError(Exception):
    """Nobody can read the dead letter, so nothing is done to it."""


class ContendedError(Exception):
    """Other processes kept changing the same row."""


REFUSED_STATUSES: Final = (400, 404, 409, 412, 413)
"""A change that is wrong in itself; 401, 403 and 429 are the account's trouble and may pass."""


def is_refusal(error: AzureError) -> bool:
    """Return whether the storage works and refuses the request, so that waiting changes nothing."""
    return isinstance(error, HttpResponseError) and error.status_code in REFUSED_STATUSES
