"""Routes of operations, batches and sagas."""

from typing import Final

from pydantic import BaseModel

from engine.batch import BatchRequest
from engine.models import OperationRequest
from engine.saga_request import SagaRequest
from engine.vocabulary import OperationState
from triggers.openapi import operation_answers as work
from triggers.openapi.common_parts import (
    ACCEPTED,
    AWAY,
    CONFLICT,
    CREATED_AFTER,
    INVALID,
    KEY,
    KEY_REUSED,
    MISSING,
    OK,
    PAGING,
    PREFER,
    TOO_LARGE,
    one_of,
    page,
    shown,
    taken_over,
    text,
    whole,
)
from triggers.openapi.parts import Answer, Route
from triggers.operation_summary import DEFAULT_SECONDS, LEAST_SECONDS, MOST_SECONDS

_BATCH: Final = "Take many operations over; a bad one concerns itself only"
_SAGA: Final = "Show a saga: what stands, what was undone, what is not known"


def _steered(function: str, act: str, summary: str) -> Route:
    return Route(
        function=function,
        method="POST",
        path=f"/operations/{{operation_id}}/{act}",
        tag="operations",
        summary=summary,
        answers=(Answer(ACCEPTED, "It was told.", work.SteeredOperation),),
        problems=(MISSING, CONFLICT, AWAY),
    )


def _taken_whole(
    name: str, many: str, body: type[BaseModel], accepted: type[BaseModel], summary: str
) -> Route:
    return Route(
        function=f"submit_{name}",
        method="POST",
        path=f"/{many}",
        tag=many,
        summary=summary,
        body=body,
        parameters=(KEY,),
        answers=(taken_over(accepted),),
        problems=(INVALID, TOO_LARGE, KEY_REUSED, AWAY),
    )


def _shown_whole(name: str, many: str, document: type[BaseModel], summary: str) -> Route:
    return Route(
        function=f"get_{name}",
        method="GET",
        path=f"/{many}/{{{name}_id}}",
        tag=many,
        summary=summary,
        answers=shown(document),
        problems=(MISSING, AWAY),
    )


OPERATIONS: Final = (
    Route(
        function="submit_operation",
        method="POST",
        path="/operations",
        tag="operations",
        summary="Take an operation over",
        body=OperationRequest,
        takes_cloud_events=True,
        parameters=(KEY, PREFER),
        answers=(
            Answer(
                OK,
                "It is finished: with the same key before, or within the wait that was preferred.",
                work.OperationDocument,
                ("Idempotent-Replayed", "Preference-Applied"),
            ),
            Answer(
                ACCEPTED,
                "Taken over, now or, with the same key, before.",
                work.AcceptedOperation,
                ("Location", "Retry-After", "Idempotent-Replayed"),
            ),
        ),
        problems=(INVALID, TOO_LARGE, KEY_REUSED, AWAY),
    ),
    Route(
        function="enqueue_operation",
        method="POST",
        path="/operations/enqueue",
        tag="operations",
        summary="Put an operation on the queue, also while the task hub is away",
        body=OperationRequest,
        takes_cloud_events=True,
        parameters=(KEY,),
        answers=(
            Answer(
                ACCEPTED,
                "It is on the queue, and starts when its turn comes.",
                work.AcceptedOperation,
                ("Location", "Retry-After"),
            ),
        ),
        problems=(INVALID, TOO_LARGE, AWAY),
    ),
    Route(
        function="list_operations",
        method="GET",
        path="/operations",
        tag="operations",
        summary="List the operations that the task hub still has",
        parameters=(
            one_of("status", OperationState),
            text("dependency", "Only of this dependency."),
            CREATED_AFTER,
            *PAGING,
        ),
        answers=page(work.OperationPage),
        problems=(INVALID, AWAY),
    ),
    Route(
        function="summarize_operations",
        method="GET",
        path="/operations/summary",
        tag="operations",
        summary="Count operations by state, lately and now",
        parameters=(whole("window_seconds", LEAST_SECONDS, MOST_SECONDS, DEFAULT_SECONDS, "How far back."),),
        answers=shown(work.OperationSummary),
        problems=(INVALID, AWAY),
    ),
    Route(
        function="get_operation",
        method="GET",
        path="/operations/{operation_id}",
        tag="operations",
        summary="Show an operation",
        answers=shown(work.OperationDocument),
        problems=(MISSING, AWAY),
    ),
    _steered("cancel_operation", "cancel", "Cancel an operation; an attempt under way ends first"),
    _steered("retry_operation_now", "retry-now", "End the present wait of an operation"),
    _taken_whole("batch", "batches", BatchRequest, work.AcceptedBatch, _BATCH),
    _shown_whole("batch", "batches", work.BatchDocument, "Show a batch, item by item"),
    _taken_whole("saga", "sagas", SagaRequest, work.AcceptedSaga, "Start a saga"),
    _shown_whole("saga", "sagas", work.SagaDocument, _SAGA),
)
