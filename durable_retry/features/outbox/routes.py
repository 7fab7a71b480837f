"""HTTP: list the events of the outbox, and send one again."""

from http import HTTPStatus
from typing import Final

from durable_retry.base.answers import Page
from durable_retry.base.names import EventState
from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.features.outbox.rules.outbox import (
    EventFilter,
    NoSuchEventError,
    OutboxEvent,
    OutboxEventDocument,
    UnreadableEventError,
)
from durable_retry.features.outbox.sending import find_shown_event, list_events, resend
from durable_retry.http.answers import ConflictError, NotFoundError
from durable_retry.http.callers import Act
from durable_retry.http.parameters import CREATED_AFTER, CREATED_BEFORE, LIMIT, one_of, row_cursor, text
from durable_retry.http.routes import Query, RouteAnswer, Routes, accepted
from durable_retry.hub.binding import TaskHub
from durable_retry.operations.actions import named_ids
from durable_retry.rules.facts import TargetType
from durable_retry.runtime import clock
from durable_retry.settings.configuration import find_dependency

routes = Routes(
    "outbox",
    {
        UnreadableEventError: lambda error: ConflictError(f"The event cannot be read: {error}."),
        NoSuchEventError: lambda _: NotFoundError("event of this id"),
    },
)

STATUS: Final = one_of("status", EventState, "Only events that are: `pending` unless it is said.")
DEPENDENCY: Final = text("dependency", "Only webhooks to this dependency.")
KEY: Final = text("key", "Only events of operations that have this key.")
CURSOR: Final = row_cursor(r"([0-9]{17}-)?op-.+")


@routes.get(
    "outbox",
    parameters=(STATUS, DEPENDENCY, KEY, CREATED_AFTER, CREATED_BEFORE, LIMIT, CURSOR),
    answers=(
        RouteAnswer(
            HTTPStatus.OK,
            "A page. With filters it looks at about 1,000 events, so it may be short or empty while "
            "`next_cursor`, which looks further, is not null.",
            Page[OutboxEvent],
        ),
    ),
)
async def list_outbox(query: Query) -> Page[OutboxEvent]:
    """List events of one state, by default the pending ones."""
    key = query[KEY]
    ids = None if key is None else frozenset(named_ids(key))
    filter_ = query.into(EventFilter, operation_ids=ids, dependencies=_names_of(query[DEPENDENCY]))
    status, cursor = query[STATUS] or EventState.PENDING, query[CURSOR]
    # Pending events are in the order of their ids, the others in that of their creation.
    if cursor is not None and cursor.startswith("op-") != (status is EventState.PENDING):
        raise InvalidInputError([Problem("/cursor", CURSOR.mistake)])
    return await list_events(status, query[LIMIT], cursor, filter_)


def _names_of(dependency: str | None) -> frozenset[str] | None:
    if dependency is None:
        return None
    known = find_dependency(dependency)
    return frozenset([dependency] if known is None else known.names)


@routes.get("outbox/{event_id}")
async def get_event(event_id: str, hub: TaskHub) -> OutboxEventDocument:
    """Show an event with its data, its attempts and why it is not sent."""
    return await find_shown_event(hub, event_id)


@routes.post(
    "outbox/{event_id}/resend",
    act=Act("sent the event again", TargetType.EVENT),
    answers=accepted(OutboxEvent, "It is pending again."),
)
async def resend_event(event_id: str, hub: TaskHub) -> OutboxEvent:
    """Send an event once more, whatever its state."""
    return await resend(hub, event_id, clock.now())
