"""Operations in any function of the app's own that is no orchestrator."""

from dataclasses import dataclass
from typing import Any, Final, Self, Unpack, overload

import azure.durable_functions as df
import azure.functions as func

from durable_retry.base.errors import NoSuchOperationError, WrongOperationStateError
from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.features.in_process.documents import (
    Declared,
    OperationFields,
    body_with,
    checked_document,
    operation_document,
    result_in,
)
from durable_retry.hub.binding import TaskHub
from durable_retry.intake.queue import accept_message, plain_body
from durable_retry.operations import actions as operations
from durable_retry.operations.actions import KeyReused, Replayed, caller_naming, submit
from durable_retry.rules.operations.envelope import ParsedEnvelope
from durable_retry.rules.operations.submission import read_operation
from durable_retry.runtime import clock
from durable_retry.settings.configuration import targets

SOURCE: Final = "app"
"""Source of operations that `Operations` submits."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """An operation that was accepted.

    Attributes:
        operation_id: Derived from the key.
        key: The one that was given, or generated.
        is_replayed: Whether the same operation was submitted before, so that nothing was started.
    """

    operation_id: str
    key: str
    is_replayed: bool


@dataclass(frozen=True, slots=True)
class Operations:
    """Operations for functions of the app's own, in the same process, without HTTP.

        @app.route(route="orders", methods=["POST"])
        @app.durable_client_input(client_name="client")
        async def order(req: func.HttpRequest, client: df.DurableFunctionsClient) -> func.HttpResponse:
            accepted = await durable_retry.Operations.of(client).submit(handler="ship-order", input=...)

    Attributes:
        hub: Configuration of the durable client: what the binding `durableClient` gives.
    """

    hub: str

    @classmethod
    def of(cls, client: df.DurableFunctionsClient) -> Self:
        """Return the operations of the task hub that a durable client speaks to."""
        return cls(TaskHub.of(client).configuration)

    @overload
    async def submit(
        self, function: Declared[..., Any], /, *args: Any, key: str, **kwargs: Any
    ) -> Accepted: ...
    @overload
    async def submit[**P](
        self, function: Declared[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Accepted: ...
    @overload
    async def submit(self, name: str, /, *args: Any, **kwargs: Any) -> Accepted: ...
    @overload
    async def submit(self, /, **operation: Unpack[OperationFields]) -> Accepted: ...
    async def submit(self, function: Any = None, /, *args: Any, **fields: Any) -> Accepted:
        """Start an operation unless its key was used before.

        Args:
            function: Declared by `operation`, or its name, with its arguments; None for a request.
            args: For the function.
            fields: Keyword arguments of the function, and `OperationFields`. Without `key` one is generated.

        Raises:
            InvalidInputError: With every mistake, or because the key belongs to another request.
            TaskHubUnavailableError: It is not known to be started; with a key, submitting again is safe.
            LookupError: The function is not declared.
        """
        document = checked_document(operation_document(function, args, fields))
        naming, envelope = caller_naming(), ParsedEnvelope(document)
        resolved = read_operation(envelope, naming, targets(), source=SOURCE, now=clock.now())
        result = await submit(TaskHub(self.hub), resolved)
        if isinstance(result, KeyReused):
            raise InvalidInputError([Problem("/key", "the key belongs to another request")])
        return Accepted(resolved.operation_id, resolved.key, isinstance(result, Replayed))

    async def accept(self, message: func.QueueMessage, /, **operation: Unpack[OperationFields]) -> None:
        """Take over a message of a storage queue: afterwards it is an operation, or a dead letter.

            await durable_retry.Operations.of(client).accept(message, handler="charge")

        What can never be an operation is a dead letter at once, with its text and its mistakes.

        Args:
            message: Its content is the `input` for a handler, `request.json` for a dependency; without both
                it is the whole operation, as in the queue `operations`.
            operation: The other fields. Without `key` it is the id of the message.

        Raises:
            NotAcceptedError: It is neither now; the queue delivers it again when the function raises this.
        """
        fields = operation_document(None, (), operation)
        body, deliveries = plain_body(message.get_body()), message.dequeue_count or 1
        await accept_message(TaskHub(self.hub), message.id or "", body_with(dict(fields), body), deliveries)

    async def get(self, operation_id: str) -> dict[str, Any] | None:
        """Return the status document of an operation; None when there is none.

        Raises:
            TaskHubUnavailableError: The task hub did not answer.
        """
        try:
            return (await operations.find_operation(TaskHub(self.hub), operation_id)).to_json()
        except NoSuchOperationError:
            return None

    async def wait(self, operation_id: str, *, timeout_seconds: float) -> Any:
        """Wait until an operation has ended, and return its result as `call` does.

        A function that waits is paid for, and is cut off at `functionTimeout`: wait for seconds, not hours.

        Raises:
            OperationFailed: It is a dead letter, or was cancelled.
            LookupError: There is no operation of this id.
            TimeoutError: It has not ended in this time, and keeps running.
            TaskHubUnavailableError: The task hub did not answer.
        """
        document = await operations.wait_for_end(TaskHub(self.hub), operation_id, timeout_seconds)
        return result_in({"document": document})

    async def cancel(self, operation_id: str) -> bool:
        """Ask an operation to end; an attempt under way ends first.

        Returns:
            False when it has ended, or there is none of this id.

        Raises:
            TaskHubUnavailableError: The task hub did not take it.
        """
        try:
            await operations.cancel(TaskHub(self.hub), operation_id, by=None)
        except (NoSuchOperationError, WrongOperationStateError):
            return False
        return True
