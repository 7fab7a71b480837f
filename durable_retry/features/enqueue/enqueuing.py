"""Put an operation on the queue `operations`, which delivers it until it is started."""

import json
from datetime import datetime
from typing import Any, Final

from durable_retry.base.names import OPERATIONS_QUEUE, QUEUE_SOURCE
from durable_retry.rules.operations.envelope import ParsedEnvelope
from durable_retry.rules.operations.keys import EXPLICIT_SCOPE, EnvelopeName
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.operations.submission import Submission, resolve
from durable_retry.settings.configuration import targets
from durable_retry.storage.queues import send_message

# The source of an envelope that is made here.
_ENQUEUE_SOURCE: Final = "/api/operations/enqueue"


async def enqueue(submission: Submission, now: datetime) -> OperationInput:
    """Put an operation on the queue, which delivers it until it is started; return what will start."""
    operation = resolve(submission, targets(), source=QUEUE_SOURCE, now=now)
    await send_message(OPERATIONS_QUEUE, json.dumps(message_of(submission)))
    return operation


def message_of(submission: Submission) -> dict[str, Any]:
    """Return the message, from which the queue's function derives the same name.

    A storage queue has no headers: a name that is no key and the trace context travel in an envelope.
    """
    envelope, name = submission.envelope or ParsedEnvelope({}), submission.name
    body = dict(envelope.payload)
    envelope_name = envelope.name
    if envelope_name is None or name.scope == EXPLICIT_SCOPE:
        body["key"], envelope_name = name.key, EnvelopeName(_ENQUEUE_SOURCE, name.key)
        if submission.trace is None:
            return body
    attributes = {"specversion": "1.0", "id": envelope_name.id, "source": envelope_name.source}
    trace = {} if submission.trace is None else submission.trace.to_json()
    return {**attributes, "type": "operation", **trace, "data": body}
