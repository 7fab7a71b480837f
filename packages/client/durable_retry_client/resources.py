"""The methods of both clients, each described once by what it asks the API for."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from durable_retry_client.documents import (
    AcceptedOperation,
    DeadLetter,
    Operation,
    Page,
    StartedReplay,
    SteeredOperation,
    Submitted,
)
from durable_retry_client.errors import OperationFailed
from durable_retry_client.flows import Flow, Flows, ListMethod, Method, Pages, Request, document_of, parts_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from durable_retry_client.documents import DeadLetterFilters, OperationFields, ReplayFields

_FIRST_LOOK_SECONDS: Final = 0.25
_LAST_LOOK_SECONDS: Final = 5.0


class Resources(Flows):
    """The calls of the API.

    Raises:
        RefusedError: There is no such id, its state does not allow the call, a filter is unknown.
        UnreachableError: There was no answer.
    """

    @Method
    def submit(self, *, wait_seconds: float = 0, **operation: Unpack[OperationFields]) -> Flow[Submitted]:
        """Submit an operation.

            client.submit(handler="charge", input={"order": "o-1", "amount": 5}, key="charge-o-1")

        Args:
            wait_seconds: How long the API may wait for its end before it answers, at most 30.
            operation: See `OperationFields`. Without `key` one is generated.

        Raises:
            RefusedError: It is not valid, or the key belongs to another request (422).
            UnreachableError: There was no answer; submit it again under the same key.
            ValueError, TypeError: A value in it has no JSON form.
        """
        body = {"key": f"client-{uuid.uuid4()}", **operation}
        headers = {"Prefer": f"wait={wait_seconds:.0f}"} if wait_seconds > 0 else None
        request = Request("POST", ("operations",), body=body, headers=headers)
        answer = yield from self._answer_of_success(request)
        is_replayed = answer.headers.get("Idempotent-Replayed") == "true"
        if answer.status_code == HTTPStatus.ACCEPTED:
            accepted = document_of(AcceptedOperation, answer)
            return Submitted(accepted.operation_id, accepted.key, accepted.status, is_replayed, None)
        ended = document_of(Operation, answer)
        return Submitted(ended.operation_id, ended.key, ended.status, is_replayed, ended)

    @Method
    def get(self, operation_id: str) -> Flow[Operation]:
        """Return an operation."""
        return self._read(Operation, Request("GET", ("operations", operation_id)))

    @Method
    def wait(self, operation_id: str, *, timeout_seconds: float) -> Flow[Operation]:
        """Wait until an operation has succeeded, looking every 0.25 s at first and every 5 s later.

        Raises:
            OperationFailed: It is a dead letter, or was cancelled.
            TimeoutError: It has not ended in this time, and keeps running; or the API did not say so.
        """
        until = time.monotonic() + timeout_seconds
        look_seconds = _FIRST_LOOK_SECONDS
        look = Request("GET", ("operations", operation_id))
        while not (operation := (yield from self._read(Operation, look, until))).is_finished:
            left_seconds = until - time.monotonic()
            if left_seconds <= 0:
                raise TimeoutError(f"{operation_id} is {operation.status} after {timeout_seconds} s")
            yield min(look_seconds, left_seconds)
            look_seconds = min(look_seconds * 1.5, _LAST_LOOK_SECONDS)
        if operation.status != "succeeded":
            raise OperationFailed(operation)
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
    def dead_letters(self, **filters: Unpack[DeadLetterFilters]) -> Pages[DeadLetter]:
        """Read dead letters, the newest first, each page when it is needed."""
        return self._pages(Page[DeadLetter], "dead-letters", filters)

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
        self,
        method: str,
        path: str | Sequence[str],
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Flow[Any]:
        """Send any request of the API, and return its document as JSON.

            client.request("POST", "circuits/payments/open", body={"reason": "the vendor deploys"})

        A POST whose answer is lost is sent again only with a `key` in its body: a second one starts nothing.

        Args:
            method: The HTTP method.
            path: Below the API's own, such as `circuits/payments/open`, not percent-encoded; its parts where
                one of them holds a slash.
            query: The parameters.
            body: JSON; None for none.
            headers: Beside those of the client.

        Raises:
            ValueError, TypeError: A value in the body has no JSON form.
        """
        repeats = method != "POST" or (isinstance(body, Mapping) and "key" in body)
        parts = parts_of(path) if isinstance(path, str) else tuple(path)
        return self._read(Any, Request(method, parts, query, body, headers, repeats))

    @ListMethod
    def items(self, path: str, /, **filters: Any) -> Pages[Any]:
        """Read any list of the API, item by item as JSON, each page when it is needed.

        client.items("operations", status="waiting_circuit", dependency="payments")
        """
        return self._pages(Page[Any], path, filters)
