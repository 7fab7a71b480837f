"""The start of an operation with an order key: it gets its number before, and joins its lane behind it."""

from contextlib import suppress
from dataclasses import replace

from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.features.order.names import ORDER
from durable_retry.features.order.rules.members import Order
from durable_retry.features.order.store import join_lane, take_number
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations.actions import Start, Started, SubmitResult
from durable_retry.operations.status import has_ended
from durable_retry.rules.operations.operation import OperationInput


async def start_in_lane(hub: TaskHub, start: Start, operation: OperationInput) -> SubmitResult:
    """Start an operation in the order of its key.

    Raises:
        TaskHubUnavailableError: There is no number, or it is not known to be started.
    """
    placed = await _with_number(hub, operation)
    result = await start(placed)
    if isinstance(result, Started):
        # The next operation in the order makes up for a lost join.
        with suppress(TaskHubUnavailableError):
            await join_lane(hub, placed)
    return result


async def _with_number(hub: TaskHub, operation: OperationInput) -> OperationInput:
    """Return an operation with its number, and who is before it."""
    parts, operation_id = operation.parts or {}, operation.operation_id
    order = Order.from_json(parts[ORDER])
    tail = await take_number(order.key, operation_id)
    if tail.recent[-1] != operation_id and await has_ended(hub, operation_id):
        # Its number is that of a start which never came, or of an earlier life of its key: others that were
        # accepted since come before it.
        tail = await take_number(order.key, operation_id, is_anew=True)
    before = tail.before(operation_id)
    after = None if before is None or await has_ended(hub, before) else before
    placed = replace(order, number=tail.number, after=after)
    return replace(operation, parts={**parts, ORDER: placed.to_json()})
