"""The gauges that show the health metrics, as a table."""

from typing import Final

from durable_retry.telemetry.metrics import Metric, MetricKind
from durable_retry.telemetry.spans import CIRCUIT_STATE, DEPENDENCY

CIRCUIT_STATUS: Final = Metric(
    "durable_retry.circuit.status",
    MetricKind.GAUGE,
    "1",
    (DEPENDENCY, CIRCUIT_STATE),
    "1 for the state that a circuit is in, 0 for the others.",
)
LIMIT_CONCURRENCY: Final = Metric(
    "durable_retry.limits.concurrency",
    MetricKind.GAUGE,
    "{attempt}",
    (DEPENDENCY,),
    "Attempts that may be under way at once.",
)
LIMIT_RATE: Final = Metric(
    "durable_retry.limits.rate",
    MetricKind.GAUGE,
    "{attempt}/s",
    (DEPENDENCY,),
    "Attempts that may start a second: rate_per_second.",
)
DEAD_LETTERS: Final = Metric(
    "durable_retry.dead_letter.count",
    MetricKind.GAUGE,
    "{dead_letter}",
    (DEPENDENCY,),
    "Open dead letters, also 0; without a dependency those of messages that name none.",
)
DEAD_LETTER_AGE: Final = Metric(
    "durable_retry.dead_letter.age",
    MetricKind.GAUGE,
    "s",
    (),
    "Age of the oldest open dead letter; 0 when there is none.",
)
OUTBOX_LAG: Final = Metric(
    "durable_retry.outbox.lag",
    MetricKind.GAUGE,
    "s",
    (),
    "Age of the oldest pending event; 0 when none is pending.",
)
LANES_BLOCKED: Final = Metric(
    "durable_retry.order_lanes.blocked",
    MetricKind.GAUGE,
    "{lane}",
    (),
    "Lanes of order keys that a dead letter blocks.",
)
LANES_WAITING: Final = Metric(
    "durable_retry.order_lanes.waiting",
    MetricKind.GAUGE,
    "{operation}",
    (),
    "Operations that wait in blocked lanes.",
)

GAUGES: Final = tuple(each for each in list(globals().values()) if isinstance(each, Metric))
