"""The refusal of an operation while the circuit of its dependency is open."""

from math import ceil
from typing import Final

from durable_retry.base.errors import CircuitOpenError
from durable_retry.circuit.cache import refusal_of
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.runtime import clock
from durable_retry.settings.configuration import find_dependency

_ANSWERED: Final = frozenset({"http", "app", "call"})
"""Sources whose caller waits for the answer; a message, a batch or a schedule has no such caller."""


async def refuse_while_open(hub: TaskHub, operation: OperationInput) -> None:
    """Refuse an operation that begins at once, by this worker's copy of the circuit.

    A pause that the dependency asked for is no open circuit. A key that was used before gets its answer.

    Raises:
        CircuitOpenError: The circuit lets no call through.
    """
    dependency = find_dependency(operation.dependency)
    if dependency is None or operation.source not in _ANSWERED or operation.start_at is not None:
        return
    refused = await refusal_of(hub, dependency, operation.operation_id, operation.limit_key)
    if refused is None or refused.throttled or await hub.read_instance(operation.operation_id) is not None:
        return
    why = ", ".join(filter(None, (refused.reason, refused.failure)))
    seconds = (refused.base - clock.now()).total_seconds()
    raise CircuitOpenError(f"{dependency.name} is not called: {why}", max(1, ceil(seconds)))
