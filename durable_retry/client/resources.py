"""The methods of both clients, each described once by what it asks the API for."""

import uuid
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Unpack

from durable_retry import clock
from durable_retry.client.documents import (
    DeadLetterFilters,
    OperationFailed,
    ReplayFields,
    Submitted,
    operation_document,
)
from durable_retry.client.flows import Flow, Flows, ListMethod, Method, Pages, Request
from durable_retry.engine.base.answers import Page
from durable_retry.engine.base.names import OperationState
from durable_retry.engine.dead_letters.document import DeadLetterDocument, StartedReplay
from durable_retry.engine.operations.status import AcceptedOperation, OperationDocument, SteeredOperation
from durable_retry.handlers.registry import Function

_FIRST_LOOK_SECONDS = 0.25
_LAST_LOOK_SECONDS = 5.0


class Resources(Flows):
    """The calls of the API.

    Raises:
        RefusedError: There is no such id, its state does not allow the call, a filter is unknown.
        UnreachableError: There was no answer.
    """

    @Method
    def get(self, operation_id: str) -> Flow[OperationDocument]:
        """Return an operation."""
        return self._read(OperationDocument, Request("GET", ("operations", operation_id)))

    @Method
    def wait(self, operation_id: str, *, timeout_seconds: float) -> Flow[OperationDocument]:
        """Wait until an operation has succeeded, looking every 0.25 s at first and every 5 s later.

        Raises:
            OperationFailed: It is a dead letter, or was cancelled.
            TimeoutError: It has not ended in this time, and keeps running.
        """
        until = clock.monotonic_seconds() + timeout_seconds
        look_seconds = _FIRST_LOOK_SECONDS
        look = Request("GET", ("operations", operation_id))
        while not (operation := (yield from self._read(OperationDocument, look))).is_finished:
            left = until - clock.monotonic_seconds()
            if left <= 0:
                raise TimeoutError(f"{operation_id} is {operation.status} after {timeout_seconds} s")
            yield min(look_seconds, left)
            look_seconds = min(look_seconds * 1.5, _LAST_LOOK_SECONDS)
        if operation.status is not OperationState.SUCCEEDED:
            raise OperationFailed(operation.to_json())
        return operation

    @Method
    def cancel(self, operation_id: str) -> Flow[SteeredOperation]:
        """Ask an operation to end; an attempt under way ends first. One that has ended is refused (409)."""
        return self._read(SteeredOperation, Request("POST", ("operations", operation_id, "cancel")))

    @Method
    def retry_now(self, operation_id: str) -> Flow[SteeredOperation]:
        """End the present wait of an operation; one that does not wait is refused (409)."""
        return self._read(SteeredOperation, Request("POST", ("operations", operation_id, "retry-now")))

    @ListMethod
    def dead_letters(self, **filters: Unpack[DeadLetterFilters]) -> Pages[DeadLetterDocument]:
        """Read dead letters, the newest first, each page when it is needed."""
        return self._pages(Page[DeadLetterDocument], "dead-letters", filters)

    @Method
    def replay(self, dead_letter_id: str, **replay: Unpack[ReplayFields]) -> Flow[str]:
        """Replay a dead letter, and return the operation's id.

        It is not sent again when its answer is lost: the dead letter shows whether it was replayed. One that
        was replayed or archived is refused (409).
        """
        path = ("dead-letters", dead_letter_id, "replay")
        started = yield from self._read(StartedReplay, Request("POST", path, body=replay, repeats=False))
        return started.operation_id

    @Method
    def request(
        self, method: str, path: str, *, query: Mapping[str, Any] | None = None, body: Any = None
    ) -> Flow[Any]:
        """Send any request of the API, and return its document as JSON.

            client.request("POST", "circuits/payments/open", body={"reason": "the vendor deploys"})

        A POST whose answer is lost is sent again only with a `key` in its body: a second one starts nothing.

        Args:
            method: The HTTP method.
            path: Below the API's own, such as `circuits/payments/open`; not percent-encoded.
            query: The parameters.
            body: JSON; None for none.
        """
        repeats = method != "POST" or (isinstance(body, Mapping) and "key" in body)
        parts = tuple(path.strip("/").split("/"))
        return self._read(Any, Request(method, parts, query=query, body=body, repeats=repeats))

    @ListMethod
    def items(self, path: str, /, **filters: Any) -> Pages[Any]:
        """Read any list of the API, item by item as JSON, each page when it is needed.

        client.items("operations", status="waiting_circuit", dependency="payments")
        """
        return self._pages(Page[Any], path, filters)

    def _submit(
        self, function: Function | None, args: tuple[Any, ...], fields: dict[str, Any]
    ) -> Flow[Submitted]:
        wait_seconds = fields.pop("wait_seconds", 0)
        document = operation_document(function, args, fields)
        document.setdefault("key", f"client-{uuid.uuid4()}")
        headers = {"Prefer": f"wait={wait_seconds:.0f}"} if wait_seconds > 0 else None
        request = Request("POST", ("operations",), body=document, headers=headers)
        answer = yield from self._answer_of_success(request)
        is_replayed = answer.headers.get("Idempotent-Replayed") == "true"
        if answer.status_code == HTTPStatus.ACCEPTED:
            accepted = AcceptedOperation.model_validate_json(answer.content)
            return Submitted(accepted.operation_id, accepted.key, accepted.status, is_replayed, None)
        ended = OperationDocument.model_validate_json(answer.content)
        return Submitted(ended.operation_id, ended.key, ended.status, is_replayed, ended)
