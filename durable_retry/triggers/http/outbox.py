"""HTTP: list the events of the outbox, and send one again."""

from http import HTTPStatus
from typing import Annotated, Any, Final

import azure.functions as func
from pydantic import BaseModel, Field

from durable_retry import clock
from durable_retry.engine.outbox import EventState
from durable_retry.services.outbox import event_document, resend
from durable_retry.stores.outbox import NoSuchEventError, list_pending
from durable_retry.stores.outbox_index import list_ended
from durable_retry.triggers.http.answers import NotFoundError, json_answer, page_answer
from durable_retry.triggers.http.documents import Attempt, UtcInstant
from durable_retry.triggers.http.parameters import CURSOR, LIMIT, one_of
from durable_retry.triggers.http.routes import AWAY, MISSING, Query, Routes, accepted, page, shown

routes = Routes("outbox", {NoSuchEventError: lambda _: NotFoundError("event of this id")})

STATE: Final = one_of("state", EventState)


class OutboxEvent(BaseModel):
    """A follow-up message and where it stands."""

    event_id: str
    operation_id: str | None
    type: str
    state: EventState
    queue: str | None
    dependency: str | None
    path: str | None
    detail: str | None
    attempt_count: Annotated[
        int | None, Field(description="Since it last became pending; null in a list of pending events.")
    ] = None
    created_at: UtcInstant
    pending_since: UtcInstant
    sent_at: UtcInstant | None


class OutboxEventDocument(OutboxEvent):
    """A follow-up message with its data, and what became of the attempts to send it."""

    data: Annotated[Any, Field(description="As it is sent; secrets are masked.")]
    correlation_id: str | None
    attempts: Annotated[
        list[Attempt],
        Field(description="Of a pending event the latest, of a failed one those of its dead letter."),
    ]
    next_attempt_at: UtcInstant | None
    waits_for_circuit: Annotated[bool, Field(description="Whether the next attempt waits for the circuit.")]
    dead_letter_id: str | None


class OutboxPage(BaseModel):
    """A page of events of one state."""

    items: list[OutboxEvent]
    next_cursor: str | None


@routes.get("outbox", parameters=(STATE, LIMIT, CURSOR), answers=page(OutboxPage), errors=(AWAY,))
async def list_outbox(query: Query) -> func.HttpResponse:
    """List events of one state, by default the pending ones."""
    state = query[STATE] or EventState.PENDING
    if state is EventState.PENDING:
        items, following = await list_pending(query[LIMIT], query[CURSOR])
    else:
        items, following = await list_ended(state, query[LIMIT], query[CURSOR])
    return page_answer(items, following)


@routes.get("outbox/{event_id}", answers=shown(OutboxEventDocument), errors=(MISSING, AWAY))
async def get_event(event_id: str, hub: str) -> func.HttpResponse:
    """Show an event with its data, its attempts and why it is not sent."""
    return json_answer(await event_document(hub, event_id))


@routes.post(
    "outbox/{event_id}/resend", answers=accepted(OutboxEvent, "It is pending again."), errors=(MISSING, AWAY)
)
async def resend_event(event_id: str, hub: str) -> func.HttpResponse:
    """Send an event once more, whatever its state."""
    event = await resend(hub, event_id, clock.now())
    return json_answer(event.to_json(), HTTPStatus.ACCEPTED)
