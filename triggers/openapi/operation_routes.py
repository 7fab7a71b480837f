"""Routes of operations, batches and sagas."""

from typing import Final

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
)
from triggers.openapi.parts import Answer, Route

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
        function="get_operation",
        method="GET",
        path="/operations/{operation_id}",
        tag="operations",
        summary="Show an operation",
        answers=shown(work.OperationDocument),
        problems=(MISSING, AWAY),
    ),
    Route(
        function="cancel_operation",
        method="POST",
        path="/operations/{operation_id}/cancel",
        tag="operations",
        summary="Cancel an operation; an attempt under way ends first",
        answers=(Answer(ACCEPTED, "It was told.", work.SteeredOperation),),
        problems=(MISSING, CONFLICT, AWAY),
    ),
    Route(
        function="retry_operation_now",
        method="POST",
        path="/operations/{operation_id}/retry-now",
        tag="operations",
        summary="End the present wait of an operation",
        answers=(Answer(ACCEPTED, "It was told.", work.SteeredOperation),),
        problems=(MISSING, CONFLICT, AWAY),
    ),
    Route(
        function="submit_batch",
        method="POST",
        path="/batches",
        tag="batches",
        summary="Take many operations over; a bad one concerns itself only",
        body=BatchRequest,
        parameters=(KEY,),
        answers=(taken_over(work.AcceptedBatch),),
        problems=(INVALID, TOO_LARGE, KEY_REUSED, AWAY),
    ),
    Route(
        function="get_batch",
        method="GET",
        path="/batches/{batch_id}",
        tag="batches",
        summary="Show a batch, item by item",
        answers=shown(work.BatchDocument),
        problems=(MISSING, AWAY),
    ),
    Route(
        function="submit_saga",
        method="POST",
        path="/sagas",
        tag="sagas",
        summary="Start a saga",
        body=SagaRequest,
        parameters=(KEY,),
        answers=(taken_over(work.AcceptedSaga),),
        problems=(INVALID, TOO_LARGE, KEY_REUSED, AWAY),
    ),
    Route(
        function="get_saga",
        method="GET",
        path="/sagas/{saga_id}",
        tag="sagas",
        summary="Show a saga: what stands, what was undone, what is not known",
        answers=shown(work.SagaDocument),
        problems=(MISSING, AWAY),
    ),
)
