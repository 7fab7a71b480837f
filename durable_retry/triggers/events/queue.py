"""The storage queue `operations`: each message starts an operation, or becomes a dead letter at once.

The host's peek-lock does the rest (host.json, `extensions.queues`): a message is hidden while it runs and
deleted afterwards; one that could not be accepted is visible again `visibilityTimeout` after the end of the
run, and moves to `operations-poison` after `maxDequeueCount` runs. Why they are as they are: docs/sources.md.
"""

import base64

import azure.durable_functions as df
import azure.functions as func

from durable_retry.engine.base.durable_names import OPERATIONS_QUEUE, QUEUE_SOURCE
from durable_retry.engine.intake.message import Arrival
from durable_retry.services.intake import intake
from durable_retry.settings.catalogue import STORAGE

blueprint = df.Blueprint()


@blueprint.queue_trigger(arg_name="message", queue_name=OPERATIONS_QUEUE, connection=STORAGE.name)
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def operations_queue(message: func.QueueMessage, hub: str) -> None:
    """Start the operation that a message holds."""
    # While something is behind, the first half of the runs may be given back; the others are for the start.
    most = intake().settings.max_dequeue_count
    arrival = Arrival(
        source=QUEUE_SOURCE,
        body=plain_body(message.get_body()),
        place=OPERATIONS_QUEUE,
        native_id=str(message.id or ""),
        may_be_left=(message.dequeue_count or 1) * 2 <= most,
    )
    await intake().accept(hub, arrival)


def decoded(text: str) -> str:
    """Return a message's JSON text: many SDKs write messages in base64, and host.json says `none`.

    JSON never looks like base64 of JSON: it begins with a brace, which the alphabet of base64 does not have.
    """
    stripped = text.strip()
    try:
        inside = "" if stripped.startswith("{") else base64.b64decode(stripped, validate=True).decode()
    except ValueError:  # not base64, or not UTF-8 in it
        return text
    return inside if inside.lstrip().startswith("{") else text


def plain_body(body: bytes) -> bytes:
    """Return a message's bytes as `decoded` returns its text; what is no text stays as it is."""
    try:
        return decoded(body.decode()).encode()
    except UnicodeDecodeError:
        return body
