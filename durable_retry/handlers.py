"""What handlers are called with, and what they raise and return; from the feature `handlers`."""

from durable_retry.features.handlers.values import (
    Call,
    HandlerFailure,
    Outcome,
    Rejected,
    TableWrite,
    Throttled,
    Transient,
)
from durable_retry.rules.operations.request import FollowUp
from durable_retry.rules.retry.history import Conflict

__all__ = [
    "Call",
    "Conflict",
    "FollowUp",
    "HandlerFailure",
    "Outcome",
    "Rejected",
    "TableWrite",
    "Throttled",
    "Transient",
]
