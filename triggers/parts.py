"""Operations that are parts of a batch or a saga: validated like any other, each with a key of its own."""

from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any

import azure.functions as func
from pydantic import BaseModel

from engine.idempotency import operation_id_for, parse_key
from engine.models import parse_operation
from engine.naming import explicit_scope
from engine.operation import OperationInput
from engine.trace_context import TraceContext
from engine.validation import validated
from stores.settings import app_settings
from triggers.bodies import header, read_body, tenant_of, trace_of, url_of
from triggers.problems import REPLAYED, json_answer
from triggers.resolution import Origin, resolve


@dataclass(frozen=True, slots=True)
class Whole:
    """A batch or a saga about to be accepted.

    Attributes:
        id: Derived from the key, and so the same for the same key on every machine.
        source: `batch` or `saga`.
        tenant: Whose it is; "" when there is one tenant.
        trace: Where in a trace the caller stands; None when nobody traces it.
    """

    id: str
    source: str
    tenant: str
    trace: TraceContext | None = None

    def resolve(self, document: Any, place: str, now: datetime) -> OperationInput:
        """Return the operation of a part.

        Args:
            document: A body of `POST /api/operations`. A key in it means what it means there; without one the
                key is derived from the whole and the place.
            place: Of the part in the whole.
            now: Aware UTC instant.

        Raises:
            UnknownTargetError: Its dependency or handler is not known.
            InvalidInputError: With everything else that is wrong with it.
        """
        request = parse_operation(document)
        if request.key is not None:
            scope, key = explicit_scope(self.tenant), request.key
        else:
            scope, key = f"source:{self.source}", f"{self.id}.{place}"
        return resolve(request, Origin(source=self.source, scope=scope, key=key, trace=self.trace), now)


def read_whole[T: BaseModel](request: func.HttpRequest, model: type[T]) -> tuple[Any, T]:
    """Return the body of a batch or a saga as it was sent, and as its model.

    Raises:
        triggers.bodies.BodyTooLargeError: It is over the limit.
        InvalidInputError: With everything that is wrong with its form.
    """
    document = read_body(request, limit_bytes=app_settings().max_batch_bytes)
    return document, validated(model, document)


def taken_over(request: func.HttpRequest, whole: Whole, *, is_replay: bool) -> func.HttpResponse:
    """Return 202 with where its status is; `is_replay` tells that it was taken over before."""
    status_url = f"{url_of(request)}/{whole.id}"
    headers = {"Location": status_url} | (REPLAYED if is_replay else {})
    body = {f"{whole.source}_id": whole.id, "status_url": status_url}
    return json_answer(body, HTTPStatus.ACCEPTED, headers)


def whole_of(request: func.HttpRequest, source: str, generated_key: str) -> Whole:
    """Return what a request's header `Idempotency-Key` names, or a new one without it.

    Args:
        request: The request.
        source: `batch` or `saga`.
        generated_key: Taken when the caller gives no key.

    Raises:
        InvalidInputError: The header cannot be read.
    """
    text, tenant = header(request, "Idempotency-Key"), tenant_of(request)
    key = f"generated:{generated_key}" if text is None else f"given:{parse_key(text)}"
    derived = operation_id_for(f"{source}:{tenant}", key).removeprefix("op-")
    return Whole(f"{source}-{derived}", source, tenant, trace_of(request))
