"""What lists are asked for by, and what an action on many is asked for with; see the HTTP API.

What is left out does not matter. Instants are RFC 3339 texts.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from durable_retry.client.documents import PauseFields
from durable_retry.engine.base.names import PriorityName

type BulkVerb = Literal["replay", "archive", "cancel", "retry_now", "pause", "resume"]
"""What can be done to many: the first two to dead letters, the others to operations that have not ended."""


class _Origin(TypedDict, total=False):
    dependency: str
    created_after: str
    created_before: str


class _TurnNames(TypedDict, total=False):
    order_key: str
    priority: PriorityName
    debounce_key: str


class OpenDeadLetters(_Origin, _TurnNames, total=False):
    """The open dead letters that an action on many meets."""

    reason: str
    category: str
    group: str


class UnfinishedOperations(_Origin, _TurnNames, total=False):
    """The operations that have not ended and that an action on many meets."""

    status: str


class OperationFilters(UnfinishedOperations, total=False):
    """The operations that a list has."""

    handler: str
    source: str
    key: str
    correlation_id: str
    q: str


class SearchFilters(OperationFilters, total=False):
    """What a search finds; `type` is such as `operation` or `dead_letter`."""

    type: str


class CountedDeadLetters(OpenDeadLetters, total=False):
    """The dead letters that are counted."""

    status: str


class DeadLetterFilters(CountedDeadLetters, total=False):
    """The dead letters that a list has."""

    key: str
    correlation_id: str
    q: str


class CauseFilters(TypedDict, total=False):
    """The root causes that a list has; `status` is `new`, `acknowledged` or `resolved`."""

    status: str


class WorkflowFilters(TypedDict, total=False):
    """The batches or sagas that a list has."""

    key: str


class OutboxFilters(_Origin, total=False):
    """The events that a list has; `status` is `pending` unless it is given."""

    status: str
    key: str


class OrderLaneFilters(TypedDict, total=False):
    """The lanes that a list has; `blocked` is `true` or `false`."""

    blocked: str
    order_key: str


class ActivityFilters(TypedDict, total=False):
    """The entries that the activity has; `kind` is such as `action` or `circuit`."""

    who: str
    kind: str
    dependency: str
    q: str
    after: str
    before: str


class SilenceOptions(TypedDict, total=False):
    """How long messages are kept back, and from whom.

    Attributes:
        for_minutes: How long, up to a week; or `until`.
        until: When it ends.
        receiver: The only one, by its name; all of them when left out.
    """

    for_minutes: float
    until: str
    receiver: str


class Pace(TypedDict, total=False):
    """How an action on many goes about it.

    Attributes:
        rate_per_second: The most per second, on average; 5 unless it is given.
        note: Kept with each dead letter.
    """

    rate_per_second: float
    note: str


class Change(TypedDict, total=False):
    """What a replay of many changes in each dead letter.

    Attributes:
        patch: A JSON patch (RFC 6902), step by step.
        downstream_key: The key that the dependency deduplicates on, `same` or `new`.
        from_step: The remembered step from which handlers are run again.
    """

    patch: Sequence[Mapping[str, Any]]
    downstream_key: str
    from_step: str


class ReplayManyOptions(Pace, Change, total=False):
    """The options of a replay of many."""


class Selection(TypedDict, total=False):
    """What an action on many meets: a filter, where `{}` means all, ids, or what failed of a batch."""

    filter: OpenDeadLetters | UnfinishedOperations
    ids: Sequence[str]
    batch_id: str


class BulkOptions(Selection, ReplayManyOptions, PauseFields, total=False):
    """The options of an action on many; of a pause, why and for how long."""


class SagaStepFields(TypedDict, total=False):
    """A step of a saga: its operation, and what undoes it."""

    name: str
    operation: Mapping[str, Any]
    compensation: Mapping[str, Any]
