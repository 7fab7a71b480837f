"""HTTP: submit an operation by way of the queue.

It is for a sender that does not send again, such as a webhook's: the operation is checked and put on the
queue `operations`, which delivers it until it is started, also while the task hub is away.
"""

from http import HTTPStatus
from typing import Any, Final

import azure.functions as func

from durable_retry.base.errors import MessageRefusedError
from durable_retry.base.names import QUEUE_SOURCE, OperationState
from durable_retry.features.enqueue.enqueuing import enqueue
from durable_retry.http.answers import RETRY_LATER_SECONDS, TOO_LARGE, problem
from durable_retry.http.callers import Caller
from durable_retry.http.parameters import KEY, LIMIT_KEY_HEADER
from durable_retry.http.routes import Routes, accepted, read_body, url_of
from durable_retry.intake.intake import http_admission
from durable_retry.intake.routes import accepted_answer
from durable_retry.operations.actions import caller_naming
from durable_retry.rules.operations.envelope import SubmissionHeaders
from durable_retry.rules.operations.request import OperationRequest
from durable_retry.rules.operations.status import AcceptedOperation
from durable_retry.rules.operations.submission import Submission, parse
from durable_retry.runtime import clock
from durable_retry.settings.configuration import targets

routes = Routes("operations")

_ENQUEUE: Final = "/enqueue"


def read_submission(request: func.HttpRequest) -> Submission:
    """Parse and name an operation that was posted for the queue."""
    headers = SubmissionHeaders.read(request.headers)
    naming = caller_naming(headers.key)

    def parse_body(document: Any) -> Submission:
        return parse(headers.envelope_of(document), naming, targets(), now=clock.now(), trace=headers.trace)

    return read_body(request, parse_body)


@routes.post(
    "operations/enqueue",
    body=OperationRequest,
    for_callers=True,
    takes_cloud_events=True,
    source=QUEUE_SOURCE,
    parameters=(KEY, LIMIT_KEY_HEADER),
    answers=accepted(
        AcceptedOperation, "It is on the queue, and starts when its turn comes.", "Location", "Retry-After"
    ),
)
async def enqueue_operation(req: func.HttpRequest, who: Caller) -> func.HttpResponse:
    """Put an operation on the queue, also while the task hub is away."""
    try:
        with http_admission().place():
            submission, now = read_submission(req), clock.now()
            if submission.request.limit_key is not None:
                who.note_limit_key(submission.request.limit_key, now)
            operation = await enqueue(submission, now)
    except MessageRefusedError as error:
        return problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error), type_=TOO_LARGE)
    url = f"{url_of(req).removesuffix(_ENQUEUE)}/{operation.operation_id}"
    return accepted_answer(operation, url, OperationState.PENDING, {"Retry-After": str(RETRY_LATER_SECONDS)})
