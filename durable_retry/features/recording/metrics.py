"""What is counted and measured of operations and circuits; gauges are declared where they are shown."""

from typing import Final

from durable_retry.features.recording.spans import (
    CIRCUIT_OF,
    CIRCUIT_STATE_BEFORE,
    PRIORITY,
    STATUS,
    WAIT_KIND,
)
from durable_retry.telemetry.metrics import Metric, MetricKind
from durable_retry.telemetry.spans import (
    CATEGORY,
    CIRCUIT_STATE,
    DEPENDENCY,
    OUTCOME,
    SOURCE,
)

_CALL_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_WAIT_BUCKETS: Final = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 14_400, 86_400)
_OPERATION_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1, 5, 15, 60, 300, 900, 3_600, 14_400, 86_400, 604_800)

SUBMISSIONS: Final = Metric(
    "durable_retry.submissions",
    MetricKind.COUNTER,
    "{submission}",
    (DEPENDENCY, SOURCE, OUTCOME, PRIORITY),
    "Operations submitted, by outcome: started, replayed or key_reused.",
)
ATTEMPT_DURATION: Final = Metric(
    "durable_retry.attempt.duration",
    MetricKind.HISTOGRAM,
    "s",
    (DEPENDENCY, OUTCOME, CATEGORY),
    "Attempts and how long each took: success, failure with its category, or not_sent.",
    _CALL_BUCKETS,
)
RETRIES: Final = Metric(
    "durable_retry.retries",
    MetricKind.COUNTER,
    "{retry}",
    (DEPENDENCY,),
    "Attempts after the first: attempts divided by attempts less these is the retry amplification.",
)
WAIT_DURATION: Final = Metric(
    "durable_retry.wait.duration",
    MetricKind.HISTOGRAM,
    "s",
    (DEPENDENCY, WAIT_KIND, PRIORITY),
    "Waits of operations that are over: for a retry, the circuit or the retry budget.",
    _WAIT_BUCKETS,
)
OPERATION_DURATION: Final = Metric(
    "durable_retry.operation.duration",
    MetricKind.HISTOGRAM,
    "s",
    (DEPENDENCY, STATUS, PRIORITY),
    "From acceptance to the end, every wait included, by how operations ended.",
    _OPERATION_BUCKETS,
)
CIRCUIT_MOVES: Final = Metric(
    "durable_retry.circuit.moves",
    MetricKind.COUNTER,
    "{move}",
    (DEPENDENCY, CIRCUIT_OF, CIRCUIT_STATE_BEFORE, CIRCUIT_STATE),
    "Changes of a circuit's state.",
)
FAILED_OPEN_CALLS: Final = Metric(
    "durable_retry.circuit.blind_calls",
    MetricKind.COUNTER,
    "{call}",
    (DEPENDENCY,),
    "Attempts that went on without the circuit because it could not be read.",
)
POSTPONEMENTS: Final = Metric(
    "durable_retry.retry_budget.postponements",
    MetricKind.COUNTER,
    "{retry}",
    (DEPENDENCY,),
    "Retries that the retry budget postponed.",
)

METRICS: Final = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
