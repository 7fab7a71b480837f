"""Routes of the outbox."""

from typing import Final

from engine.outbox import EventState
from triggers.openapi import dead_letter_answers as letters
from triggers.openapi.common_parts import ACCEPTED, AWAY, INVALID, MISSING, PAGING, one_of, page
from triggers.openapi.parts import Answer, Route

OUTBOX: Final = (
    Route(
        function="list_outbox",
        method="GET",
        path="/outbox",
        tag="outbox",
        summary="List events of one state, the pending ones unless told otherwise",
        parameters=(one_of("state", EventState), *PAGING),
        answers=page(letters.OutboxPage),
        problems=(INVALID, AWAY),
    ),
    Route(
        function="resend_event",
        method="POST",
        path="/outbox/{event_id}/resend",
        tag="outbox",
        summary="Send an event once more",
        answers=(Answer(ACCEPTED, "It is pending again.", letters.OutboxEvent),),
        problems=(MISSING, AWAY),
    ),
)
