"""Commands about events, which the app sends from an outbox after an operation succeeded."""

import json
from typing import Any, Final

from retryctl.commands import Ask, Command, Listing
from retryctl.operations import ATTEMPT
from retryctl.output import Lines, facts, filled


def _to(event: Any) -> str:
    return event["queue"] or f"{event['dependency']} {event['path']}"


def _view(document: Any) -> Lines:
    shown = document | {"to": _to(document), "data": json.dumps(document["data"])}
    yield facts(shown, "event_id state type to data next_attempt_at detail dead_letter_id")
    yield from filled(ATTEMPT, document["attempts"])


COMMANDS: Final = (
    Command(
        "outbox list",
        "list the events in one state",
        Listing(
            "outbox", "event_id state type to pending_since:pending_since detail", "event_id", {"to": _to}
        ),
        "event_status dependency times key list",
    ),
    Command("outbox show", "show an event and its attempts", Ask("GET outbox/{id}", "event_id", _view), "id"),
    Command(
        "outbox resend",
        "send an event again, under the same id",
        Ask("POST outbox/{id}/resend", "event_id", "{event_id}  {state}"),
        "id",
    ),
)
