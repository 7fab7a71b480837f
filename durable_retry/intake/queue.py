"""The storage queue `operations`: take over its messages, and keep those that it gave up."""

import base64
import json
from datetime import datetime
from typing import Final

from durable_retry.base.names import OPERATIONS_QUEUE, POISON_QUEUE, QUEUE_SOURCE, DeadLetterReason
from durable_retry.hub.task_hub import TaskHub
from durable_retry.intake.intake import Refusal, intake
from durable_retry.rules.intake import Arrival
from durable_retry.runtime.concurrency import raise_first, settle_all
from durable_retry.settings.intake import max_dequeue_count
from durable_retry.storage.queues import TakenMessage, delete_taken, send_message, take_left

_GIVEN_UP: Final = Refusal(
    DeadLetterReason.POISON_MESSAGE,
    "the queue gave it up: every delivery ended before it could be taken over",
)

# The pause before a poison message comes again that storage did not take: time for storage to recover.
_POISON_AGAIN_SECONDS: Final = 60


async def return_poison(body: bytes) -> None:
    """Put a message back into the poison queue as a new one, to be delivered after a pause."""
    text = body.decode(errors="replace")
    await send_message(POISON_QUEUE, text, hidden_seconds=_POISON_AGAIN_SECONDS)


async def keep_left_poison() -> None:
    """Keep the messages in `operations-poison` that were delivered too often to come again."""

    async def keep(message: TakenMessage) -> None:
        await keep_poison(message.id, message.body, message.sent_at)
        await delete_taken(POISON_QUEUE, message)

    raise_first((await settle_all(keep, await take_left(POISON_QUEUE, max_dequeue_count()), 1))[1])


async def keep_poison(message_id: str, body: bytes, given_up_at: datetime | None) -> None:
    """Keep a message that the queue gave up as a dead letter.

    Args:
        given_up_at: When the host moved it to the poison queue, after its last delivery; None means now.
    """
    arrival = Arrival(
        source=QUEUE_SOURCE,
        body=plain_body(body),
        place=OPERATIONS_QUEUE,
        native_id=message_id,
        deliveries=max_dequeue_count(),
    )
    await intake().keep_refused(arrival, _GIVEN_UP, given_up_at)


async def accept_message(hub: TaskHub, message_id: str, body: bytes, deliveries: int) -> None:
    """Take over a message of any queue, by its plain body; raises as `Intake.accept`.

    Args:
        deliveries: How often it was delivered, this time included.
    """
    arrival = Arrival(
        source=QUEUE_SOURCE,
        body=body,
        place=OPERATIONS_QUEUE,
        native_id=message_id,
        # While something is behind, the first half of the deliveries may be given back; a later one starts.
        may_be_left=deliveries * 2 <= max_dequeue_count(),
        deliveries=deliveries,
    )
    await intake().accept(hub, arrival)


def decoded(text: str) -> str:
    """Return a queue message's JSON text: many SDKs write messages in base64, and host.json says `none`.

    JSON never looks like base64 of JSON: it begins with a brace, which the alphabet of base64 does not have.
    A byte order mark is left out, before the text and in it.
    """
    stripped = text.strip().removeprefix(_BYTE_ORDER_MARK)
    if stripped.startswith("{"):
        return stripped
    try:
        inside = _text_in_base64(stripped)
    except ValueError:  # not base64, or no text in it
        return text
    return inside if inside.lstrip().startswith("{") else text


_BYTE_ORDER_MARK: Final = "\ufeff"
_URL_SAFE: Final = str.maketrans("-_", "+/")


def _text_in_base64(text: str) -> str:
    """Read base64 in any of its forms: in lines, with url-safe letters, without padding (RFC 4648)."""
    digits = "".join(text.split()).translate(_URL_SAFE).rstrip("=")
    inside = base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True)
    return inside.decode(json.detect_encoding(inside)).removeprefix(_BYTE_ORDER_MARK)


def plain_body(body: bytes) -> bytes:
    """Return a message's bytes as `decoded` returns its text; what is no text stays as it is."""
    try:
        return decoded(body.decode()).encode()
    except UnicodeDecodeError:
        return body
