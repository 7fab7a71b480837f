"""The app's own orchestrators and entities by their durable names, for task hubs that tests run."""

from typing import Any, Final

from durable_retry.base import names
from durable_retry.features.debounce.names import DEBOUNCE
from durable_retry.features.diagnosis import names as diagnosis_names
from durable_retry.features.order import names as order_names
from durable_retry.features.outbox.names import OUTBOX
from durable_retry.features.workflows import names as workflow_names
from durable_retry_console.bulk import names as bulk_names
from durable_retry_console.bulk.orchestration import bulk_action
from entities.call_limiter import CallLimiter
from entities.circuit_breaker import CircuitBreaker
from entities.debounce import Debounce
from entities.idempotency_record import IdempotencyRecord
from entities.order_lane import OrderLane
from orchestrators import batch, call, diagnosis, operation, order_lane, outbox, saga, upkeep, wake_waiting

OPERATIONS: Final[dict[str, Any]] = {
    names.OPERATION: operation.operation,
    names.RELEASE_WAITING: wake_waiting.release_waiting,
    names.RETENTION: upkeep.retention,
    diagnosis_names.DIAGNOSIS: diagnosis.diagnosis,
    names.QUEUE_CHECK: upkeep.queue_check,
    order_names.PASS_TURN: order_lane.pass_turn,
}
AROUND_OPERATIONS: Final[dict[str, Any]] = {
    OUTBOX: outbox.outbox,
    workflow_names.BATCH: batch.batch,
    workflow_names.SAGA: saga.saga,
    bulk_names.BULK_ACTION: bulk_action,
    names.CALL: call.call_operation,
}
ENTITIES: Final[dict[str, Any]] = {
    names.IDEMPOTENCY_RECORD: IdempotencyRecord,
    names.CIRCUIT_BREAKER: CircuitBreaker,
    names.CALL_LIMITER: CallLimiter,
    order_names.ORDER_LANE: OrderLane,
    DEBOUNCE: Debounce,
}
