"""What happened to operations of each priority. Only `high` and `low` are counted: the rest is `normal`."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Self

from pydantic import Field

from durable_retry.engine.base.answers import Answer
from durable_retry.engine.base.json_forms import JsonShape
from durable_retry.engine.base.names import Priority
from durable_retry.engine.retry.history import WaitKind
from durable_retry_console.metrics.buckets import Percentiles, Waited, Waits

BY_PRIORITY: Final = frozenset({WaitKind.LIMIT, WaitKind.RETRY_BUDGET, WaitKind.CIRCUIT})
"""Waits in which the priority counts."""


@dataclass(slots=True)
class PriorityFigures(JsonShape):
    """What happened to operations of one priority."""

    started: int = 0  # operations accepted
    waits: Waits = field(default_factory=Waits)  # those of `BY_PRIORITY`
    operation_times: Counter[int] = field(default_factory=Counter)  # from acceptance to the end, by bucket

    def add(self, other: "PriorityFigures") -> None:
        """Add the figures of another process, minute or dependency."""
        self.started += other.started
        self.waits.add(other.waits.count, other.waits.seconds)
        self.operation_times.update(other.operation_times)

    def without(self, other: "PriorityFigures") -> "PriorityFigures":
        """Return what is left when a part of the figures is taken away."""
        waits = Waits(self.waits.count - other.waits.count, self.waits.seconds - other.waits.seconds)
        return PriorityFigures(
            self.started - other.started, waits, self.operation_times - other.operation_times
        )


class PriorityMetrics(Answer):
    """What happened to operations of one priority."""

    started: Annotated[int, Field(description="Operations accepted.")]
    waits: Annotated[
        Waited,
        Field(description="For a limit, the retry budget or the circuit, where the priority counts."),
    ]
    operation_ms: Annotated[Percentiles, Field(description="From acceptance to the end, waits included.")]

    @classmethod
    def of(cls, figures: PriorityFigures) -> Self:
        """Return what people see of figures."""
        return cls(
            started=figures.started,
            waits=Waited.of(figures.waits),
            operation_ms=Percentiles.of(figures.operation_times),
        )


def shown_priorities(
    counted: Mapping[Priority, PriorityFigures], total: PriorityFigures
) -> dict[Priority, PriorityMetrics]:
    """Return figures by priority, `normal` as what is left of the total; empty where nothing is left out."""
    if not counted:
        return {}
    rest = total
    for figures in counted.values():
        rest = rest.without(figures)
    every = {**counted, Priority.NORMAL: rest}
    return {priority: PriorityMetrics.of(every[priority]) for priority in Priority if priority in every}
