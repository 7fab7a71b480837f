"""Operations from the app's own code: `call` in an orchestrator, `Operations` in any other function.

receipt = yield from durable_retry.call(context, charge, "o-1", amount=5, key="charge-o-1")

operations = durable_retry.Operations.of(client)
accepted = await operations.submit(charge, "o-1", amount=5, key="charge-o-1")
"""

import json
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, Self, TypedDict, Unpack, overload
from weakref import WeakKeyDictionary

import azure.durable_functions as df
import azure.functions as func
from durabletask import task

from durable_retry.base.documents import size_problem
from durable_retry.base.errors import NoSuchOperationError, WrongOperationStateError
from durable_retry.base.foreign import plain_json
from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.names import CALL, OperationState
from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.handlers.registry import Function, OperationFunction, find_handler, handler_of
from durable_retry.handlers.signatures import read_result, result_of
from durable_retry.hub.binding import TaskHub
from durable_retry.hub.executor_guard import execution_of
from durable_retry.intake.queue import accept_message
from durable_retry.operations import actions as operations
from durable_retry.operations.actions import KeyReused, Replayed, caller_naming, submit
from durable_retry.rules.operations.completion import MASKED, is_masked_at
from durable_retry.rules.operations.envelope import ParsedEnvelope
from durable_retry.rules.operations.keys import visible
from durable_retry.rules.operations.request import Event
from durable_retry.rules.operations.submission import read_operation
from durable_retry.runtime import clock
from durable_retry.settings.configuration import app_settings, function_name, targets

type Context = task.OrchestrationContext | df.DurableOrchestrationContext
"""What an orchestrator gets, in the native or in the first style of the SDK."""

SOURCE: Final = "app"
"""Source of operations that `Operations` submits."""

# Calls so far by each orchestration's context, which every replay makes anew.
_calls: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


class OperationFields(TypedDict, total=False):
    """The body of an operation; what is left out has the meaning of the API.

    Attributes:
        dependency: The one whose policy and circuit it uses; with `request`.
        request: `method` (POST when left out), `path`, `query`, `headers`, `json` or `body`.
        handler: In place of both, the name of a handler.
        input: For the handler, any JSON.
        key: The key of the operation, 1 to 255 visible ASCII characters.
        correlation_id: Name of the wider piece of work.
        deadline_seconds: For the whole operation; 0 for none.
        start_at: When it begins, as RFC 3339; at most a year ahead.
        delay_seconds: Begin so much after it was accepted, in place of `start_at`.
        order_key: Operations of one order key run one after the other.
        order_on_failure: `block` or `skip`: what those behind it do when it ends as a dead letter.
        priority: `high`, `normal` or `low`, where operations wait.
        limit_key: Whose share of the dependency's limits it uses, such as a customer.
        debounce_key: A later operation with it replaces this one while it waits; with `debounce_seconds`.
        debounce_seconds: How long it waits for a later one.
        debounce_max_seconds: For how long it and those that it replaced wait at most.
        retry: Changes of the dependency's policy.
        on_success: Events to send when it succeeds.
    """

    dependency: str
    request: Mapping[str, Any]
    handler: str
    input: Any
    key: str
    correlation_id: str
    deadline_seconds: float
    start_at: str
    delay_seconds: float
    order_key: str
    order_on_failure: str
    priority: str
    limit_key: str
    debounce_key: str
    debounce_seconds: float
    debounce_max_seconds: float
    retry: Mapping[str, Any]
    on_success: Iterable[Mapping[str, Any] | Event]


_OPTIONS: Final = OperationFields.__annotations__.keys() - {"dependency", "request", "handler", "input"}
"""What may stand beside the arguments of a function."""


def operation_document(
    function: Function | None, args: tuple[Any, ...], fields: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the body of an operation as JSON.

    Args:
        function: Declared by `operation`; None when `fields` say it all.
        args: For the function.
        fields: See `OperationFields`; of a function its keyword arguments and the fields beside them.

    Raises:
        LookupError: The function is not declared.
        InvalidInputError: The arguments are not those of the function.
    """
    if function is not None:
        handler = handler_of(function)
        kwargs = {name: value for name, value in fields.items() if name not in _OPTIONS}
        call = {"handler": handler.name, "input": handler.signature.input_of(args, kwargs)}
        fields = call | {name: value for name, value in fields.items() if name in _OPTIONS}
    document = dict(fields)
    if "on_success" in fields:
        events = fields["on_success"]
        document["on_success"] = [event.to_json() if isinstance(event, Event) else event for event in events]
    return document


class OperationFailed(Exception):  # noqa: N818 - said where it is raised: `except OperationFailed`
    """An operation that did not succeed.

        except OperationFailed as failed:
            log.warning("%s: %s, dead letter %s", failed.reason, failed.detail, failed.dead_letter_id)

    Attributes:
        operation_id: The id of the operation; "" when it was never started.
        status: `dead_lettered` or `cancelled`; `refused` when it was never started.
        category: Kind of the failure, such as `malformed`; None of a cancelled one.
        reason: The reason of the dead letter, such as `RetriesExhausted`; `ValidationFailed` when it was
            refused.
        dead_letter_id: What to replay; None when there is none.
        detail: What went wrong, for a person.
        document: The last status document; empty when it was never started.
    """

    def __init__(self, document: Mapping[str, Any], problems: Iterable[Mapping[str, str]] = ()) -> None:
        letter = document.get("dead_letter") or {}
        listed = "; ".join(f"{problem['pointer']}: {problem['detail']}" for problem in problems)
        self.document = dict(document)
        self.operation_id = str(document.get("operation_id", ""))
        self.status = str(document.get("status", "refused"))
        self.category: str | None = "malformed" if listed else letter.get("category")
        self.reason: str | None = "ValidationFailed" if listed else letter.get("reason")
        self.dead_letter_id: str | None = letter.get("id")
        self.detail = listed or str(letter.get("detail") or "")
        words = (self.operation_id, self.status, self.reason, self.detail)
        super().__init__(", ".join(filter(None, words)))


type Calling[R] = Generator[task.Task[Any], Any, R]


@overload
def call[R](
    context: Context, function: OperationFunction[Any, ..., R], /, *args: Any, key: str, **kwargs: Any
) -> Calling[R]: ...
@overload
def call[**P, R](
    context: Context, function: OperationFunction[Any, P, R], /, *args: P.args, **kwargs: P.kwargs
) -> Calling[R]: ...
@overload
def call(context: Context, /, **operation: Unpack[OperationFields]) -> Calling[Any]: ...
def call(context: Context, function: Any = None, /, *args: Any, **fields: Any) -> Calling[Any]:
    """Run an operation in an orchestrator, and return its result; `yield from` it.

        receipt = yield from durable_retry.call(context, charge, "o-1", amount=5, key="charge-o-1")

        charge = yield from durable_retry.call(
            context, dependency="payments", request={"path": "/charges", "json": {"amount": 5}}
        )
        charge_id = charge["json"]["id"]

    It waits as long as the operation does, without compute.

    Args:
        context: The context of the orchestrator.
        function: Declared by `operation`, with its arguments; None for a request.
        args: For the function.
        fields: Keyword arguments of the function, and `OperationFields`. Without `key` it is made of the
            orchestrator's name, the instance's id and the number of this call, such as `checkout/order-7/1`:
            the same in every replay. When the orchestrator has continued as new or was started again, its
            execution is part of it, too. A `key` that was used before gives the operation of before, unless
            that had ended before this execution began: such an old result is refused. Without
            `correlation_id` that is the instance's id.

    Returns:
        The value that a function returns, as annotated, whether it is given itself or as `handler` by its
        name; for a request the `result` of the status document: `status_code`, `headers`, `json` or `body`.

    Raises:
        OperationFailed: It is a dead letter, was cancelled, or was refused as invalid.
        InvalidInputError: The arguments are not those of the function.
        LookupError: The function is not declared.
    """
    number = _calls[context] = _calls.get(context, 0) + 1
    execution = execution_of(context)
    name = f"{context.instance_id}/{execution.id}/{number}"
    instance_id = f"call-{_digest(name)[:40]}"
    document = operation_document(function, args, fields)
    document.setdefault("correlation_id", visible(context.instance_id))
    caller = f"{execution.name}/{context.instance_id}"
    keys = [f"{caller}/{number}", f"{caller}/{_digest(execution.id)[:16]}/{number}"]
    given = _input_of_call(document, execution.began_at, keys)
    child: task.Task[Any]
    if isinstance(context, task.OrchestrationContext):
        child = context.call_sub_orchestrator(function_name(CALL), input=given, instance_id=instance_id)
    else:
        child = context.call_sub_orchestrator(function_name(CALL), given, instance_id)
    return _result_of((yield child))


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _input_of_call(document: dict[str, Any], since: datetime, keys: list[str]) -> dict[str, Any]:
    # What the host could not take is not sent, but why it is refused.
    try:
        return {"document": _checked_document(document), "since": to_rfc3339(since), "keys": keys}
    except InvalidInputError as error:
        return {"problems": [problem.to_json() for problem in error.problems]}


def _checked_document(given: dict[str, Any]) -> dict[str, Any]:
    """Return the body of an operation as JSON, no larger than one that comes over HTTP.

    Raises:
        InvalidInputError: The host could not read it, or it is too large.
    """
    document: dict[str, Any] = plain_json(given)
    if problem := size_problem(document, app_settings().max_body_bytes):
        raise InvalidInputError([problem])
    return document


def _result_of(ended: Mapping[str, Any]) -> Any:
    if "problems" in ended:
        raise OperationFailed({}, ended["problems"])
    document = ended["document"]
    if document["status"] != OperationState.SUCCEEDED:
        raise OperationFailed(document)
    result = document["result"]
    if is_masked_at(result, "/value"):
        detail = "holds the dependency's credential, which is never stored: there is no value to return"
        places = [place for place in result[MASKED] if is_masked_at({MASKED: [place]}, "/value")]
        raise OperationFailed(document, [Problem(place, detail).to_json() for place in places])
    if "value" not in result:
        return result
    handler = find_handler(document["handler"])
    value = result["value"]
    return value if handler is None else read_result(result_of(handler.function), json.dumps(value))


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
        self, function: OperationFunction[Any, ..., Any], /, *args: Any, key: str, **kwargs: Any
    ) -> Accepted: ...
    @overload
    async def submit[**P](
        self, function: OperationFunction[Any, P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Accepted: ...
    @overload
    async def submit(self, /, **operation: Unpack[OperationFields]) -> Accepted: ...
    async def submit(self, function: Any = None, /, *args: Any, **fields: Any) -> Accepted:
        """Start an operation unless its key was used before.

        Args:
            function: Declared by `operation`, with its arguments; None for a request.
            args: For the function.
            fields: Keyword arguments of the function, and `OperationFields`. Without `key` one is generated.

        Raises:
            InvalidInputError: With every mistake, or because the key belongs to another request.
            TaskHubUnavailableError: It is not known to be started; with a key, submitting again is safe.
            LookupError: The function is not declared.
        """
        document = _checked_document(operation_document(function, args, fields))
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
        deliveries = message.dequeue_count or 1
        await accept_message(TaskHub(self.hub), message.id or "", message.get_body(), deliveries, fields)

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
        return _result_of({"document": document})

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
