"""Operations in an orchestrator of the app's own."""

from collections.abc import Generator
from datetime import datetime
from hashlib import sha256
from typing import Any, Unpack, overload
from weakref import WeakKeyDictionary

import azure.durable_functions as df
from durabletask import task

from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.validation import InvalidInputError
from durable_retry.features.in_process.documents import (
    Declared,
    OperationFields,
    checked_document,
    operation_document,
    result_in,
)
from durable_retry.features.in_process.executions import execution_of
from durable_retry.features.in_process.names import CALL
from durable_retry.rules.operations.keys import visible
from durable_retry.settings.configuration import function_name

type Context = task.OrchestrationContext | df.DurableOrchestrationContext
"""What an orchestrator gets, in the native or in the first style of the SDK."""

# Calls so far by each orchestration's context, which every replay makes anew.
_calls: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

type Calling[R] = Generator[task.Task[Any], Any, R]


@overload
def call[R](
    context: Context, function: Declared[..., R], /, *args: Any, key: str, **kwargs: Any
) -> Calling[R]: ...
@overload
def call[**P, R](
    context: Context, function: Declared[P, R], /, *args: P.args, **kwargs: P.kwargs
) -> Calling[R]: ...
@overload
def call(context: Context, name: str, /, *args: Any, **kwargs: Any) -> Calling[Any]: ...
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
        function: Declared by `operation`, or its name, with its arguments; None for a request.
        args: For the function.
        fields: Keyword arguments of the function, and `OperationFields`. Without `key` it is made of the
            orchestrator's name, the instance's id and the number of this call, such as `checkout/order-7/1`:
            the same in every replay. When the orchestrator has continued as new or was started again, its
            execution is part of it, too. A `key` that was used before gives the earlier operation, unless
            that had ended before this execution began: such an old result is refused. Without
            `correlation_id` that is the instance's id.

    Returns:
        The value that a function returns, as annotated, whether it is given itself or by its name, also as
        `handler`; for a request the `result` of the status document: `status_code`, `headers`, `json` or
        `body`.

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
    input_ = _input_of_call(document, execution.began_at, keys)
    child: task.Task[Any]
    if isinstance(context, task.OrchestrationContext):
        child = context.call_sub_orchestrator(function_name(CALL), input=input_, instance_id=instance_id)
    else:
        child = context.call_sub_orchestrator(function_name(CALL), input_, instance_id)
    return result_in((yield child))


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _input_of_call(document: dict[str, Any], since: datetime, keys: list[str]) -> dict[str, Any]:
    # In place of a document that the host could not take, the reasons are sent.
    try:
        return {"document": checked_document(document), "since": to_rfc3339(since), "keys": keys}
    except InvalidInputError as error:
        return {"problems": [problem.to_json() for problem in error.problems]}
