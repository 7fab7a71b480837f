"""The storage queue `operations`: each message starts an operation, or becomes a dead letter at once.

Only trouble of our own side raises, so that the queue delivers the message again: whatever is wrong with the
message itself would be wrong the next time too.
"""

import base64
import binascii
import logging
from typing import Final

import azure.durable_functions as df
import azure.functions as func

from engine.json_text import read_json
from engine.models import parse_operation
from engine.problem import InvalidInputError
from engine.vocabulary import DeadLetterReason
from stores import clock
from stores.dead_letters import keep_message
from stores.settings import STORAGE
from stores.submission import KeyReused, submit
from triggers.operations import explicit_scope
from triggers.resolution import Origin, UnknownTargetError, resolve

blueprint = df.Blueprint()

SOURCE: Final = "queue"
QUEUE: Final = "operations"

_log = logging.getLogger(__name__)


@blueprint.queue_trigger(arg_name="message", queue_name=QUEUE, connection=STORAGE)
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def operations_queue(message: func.QueueMessage, hub: str) -> None:
    """Start the operation that a message holds."""
    text = message.get_body().decode("utf-8", errors="replace")
    await take_message(hub, text, message_id=str(message.id))


async def take_message(hub: str, text: str, *, message_id: str) -> None:
    """Start the operation that a message's text holds; a malformed one becomes a dead letter.

    Args:
        hub: Configuration of the durable client.
        text: JSON, plain or in base64.
        message_id: The queue's own.

    Raises:
        TaskHubUnavailableError: It was not taken over and should be delivered again.
        azure.core.exceptions.AzureError: The dead letter could not be written; as above.
    """
    try:
        document = read_json(decoded(text))
    except InvalidInputError as error:
        await _keep(text, message_id, DeadLetterReason.MALFORMED_JSON, error)
        return
    try:
        request = parse_operation(document)
        # A key of the sender's own means the same wherever it comes in; the queue's ids are its own.
        scope = explicit_scope("") if request.key is not None else f"source:{SOURCE}"
        origin = Origin(source=SOURCE, scope=scope, key=request.key or message_id)
        operation = resolve(request, origin, clock.now())
    except UnknownTargetError as error:
        await _keep(text, message_id, DeadLetterReason.UNKNOWN_DEPENDENCY, error)
        return
    except InvalidInputError as error:
        await _keep(text, message_id, DeadLetterReason.VALIDATION_FAILED, error)
        return
    if isinstance(await submit(hub, operation), KeyReused):
        told = "the key belongs to another request"
        await _keep(text, message_id, DeadLetterReason.VALIDATION_FAILED, InvalidInputError([]), told)


def decoded(text: str) -> str:
    """Return a message's JSON text: many SDKs write messages in base64, and host.json says `none`.

    JSON never looks like base64 of JSON: it begins with a brace, which the alphabet of base64 does not have.
    """
    stripped = text.strip()
    if stripped.startswith("{"):
        return text
    try:
        return base64.b64decode(stripped, validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return text


async def _keep(
    text: str, message_id: str, reason: DeadLetterReason, error: InvalidInputError, told: str = ""
) -> None:
    dead_letter_id = await keep_message(
        text, source=SOURCE, message_id=message_id, reason=reason, detail=told or str(error), now=clock.now()
    )
    _log.warning("message %s of the queue is dead letter %s: %s", message_id, dead_letter_id, reason.value)
