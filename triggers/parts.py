"""Operations that are parts of a batch or a saga: validated like any other, each with a key of its own."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import azure.functions as func

from engine.idempotency import operation_id_for, parse_key
from engine.models import parse_operation
from engine.naming import explicit_scope
from engine.operation import OperationInput
from engine.trace_context import TraceContext
from triggers.bodies import header, tenant_of, trace_of
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
