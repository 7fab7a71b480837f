"""Metrics as the API answers them, made of `Counts`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self

from pydantic import Field

from durable_retry.base.answers import Answer, Instant
from durable_retry.base.names import Priority
from durable_retry_console.metrics.counts import BY_PRIORITY, Counts, labelled, percentile_ms


class Percentiles(Answer):
    """Durations in milliseconds; null where nothing ended."""

    p50: float | None
    p95: float | None

    @classmethod
    def of(cls, counts: Mapping[str, float], name: str) -> Self:
        """Return those of durations that are counted by bucket."""
        times = {int(bucket): count for bucket, count in labelled(counts, name).items() if count > 0}
        return cls(p50=percentile_ms(times, 0.5), p95=percentile_ms(times, 0.95))


class Waited(Answer):
    """Waits of one kind that are over."""

    count: int
    seconds: float


class PriorityMetrics(Answer):
    """What happened to operations of one priority."""

    started: int = Field(description="Operations accepted.")
    waits: Waited = Field(
        description="For a limit, the retry budget or the circuit, where the priority counts."
    )
    operation_ms: Percentiles = Field(description="From acceptance to the end, waits included.")

    @classmethod
    def of(cls, counts: Mapping[str, float]) -> Self:
        """Return what people see of the numbers of one priority."""
        return cls(
            started=_whole(counts, "started"),
            waits=Waited(count=_whole(counts, "waits"), seconds=_rounded(counts, "wait_seconds")),
            operation_ms=Percentiles.of(counts, "operation_ms"),
        )


class MetricFigures(Answer):
    """What happened within some time, counted where it ended."""

    started: int = Field(description="Operations accepted.")
    attempts: int = Field(description="Attempts that ended, retries included.")
    failures: int
    failures_by_category: dict[str, int]
    retries: int = Field(description="Attempts after the first one of their operation.")
    amplification: float | None = Field(
        description="Attempts for each first attempt; null without a first attempt."
    )
    not_sent: int = Field(
        description="Attempts that never left the app; they are made again and count as none."
    )
    attempt_ms: Percentiles
    ended: int = Field(description="Operations that ended.")
    ended_by_status: dict[str, int]
    operation_ms: Percentiles = Field(description="From acceptance to the end, waits included.")
    waits: dict[str, Waited] = Field(
        description="By kind: retry, circuit, retry_budget, limit, order, own_failure."
    )
    late_ms: Percentiles = Field(description="From when a wait was due to its end.")
    openings: int = Field(description="Outages that began: a circuit opened, by itself or by hand.")
    key_openings: int = Field(description="The same of the circuits of limit keys.")
    attempt_seconds: float = Field(
        description="Sum of the attempts' durations. Divided by the seconds of the step, it is how many "
        "were under way on average."
    )
    current_concurrency: float | None = Field(
        description="How many attempts were allowed at once, on average of the attempts that asked. null "
        "without such a limit, where no attempt asked, and for several dependencies."
    )
    current_rate_per_second: float | None = Field(
        description="How many starts per second were allowed, likewise."
    )
    by_priority: dict[Priority, PriorityMetrics] = Field(
        description="Empty where every operation was `normal`."
    )
    debounce_replaced: int = Field(
        description="Operations that ended since a later one of their debounce key replaced them."
    )
    debounce_ran: int = Field(description="Operations with a debounce key that ran, and ended.")

    @classmethod
    def of(cls, counts: Mapping[str, float], *, with_limits: bool = True, **more: Any) -> Self:
        """Return what people see of the numbers; limits of several dependencies have no sum."""
        failures, ended, debounce = (labelled(counts, name) for name in ("failures", "ended", "debounce"))
        attempts = _whole(counts, "attempts")
        first = attempts - _whole(counts, "retries")
        return cls(
            **{name: make(counts, name) for make, names in _ALIKE.items() for name in names},
            failures=int(sum(failures.values())),
            failures_by_category=_wholes(failures),
            amplification=round(attempts / first, 3) if first > 0 else None,
            ended=int(sum(ended.values())),
            ended_by_status=_wholes(ended),
            waits={
                kind: Waited(count=int(count), seconds=_rounded(counts, f"wait_seconds|{kind}"))
                for kind, count in labelled(counts, "waits").items()
            },
            attempt_seconds=_rounded(counts, "attempt_seconds"),
            current_concurrency=_mean_limit(counts, "concurrency") if with_limits else None,
            current_rate_per_second=_mean_limit(counts, "rate") if with_limits else None,
            by_priority=_by_priority(counts),
            debounce_replaced=_whole(debounce, "replaced"),
            debounce_ran=_whole(debounce, "ran"),
            **more,
        )


class DependencyMetrics(MetricFigures):
    """What happened to one dependency."""

    dependency: str


class MetricPoint(MetricFigures):
    """What happened in one step."""

    at: Instant = Field(description="Beginning of the step.")


class MetricsDocument(Answer):
    """What happened to one dependency or to all of them."""

    begins_at: Instant = Field(alias="from")
    ends_at: Instant = Field(alias="to")
    step_seconds: int
    total: MetricFigures
    dependencies: tuple[DependencyMetrics, ...]
    points: tuple[MetricPoint, ...]


def _whole(counts: Mapping[str, float], name: str) -> int:
    return int(counts.get(name, 0))


_ALIKE: Final[Mapping[Callable[[Mapping[str, float], str], Any], Sequence[str]]] = {
    _whole: ("started", "attempts", "retries", "not_sent", "openings", "key_openings"),
    Percentiles.of: ("attempt_ms", "operation_ms", "late_ms"),
}
"""Members that are named as what they are made of, by how."""


def _wholes(counts: Mapping[str, float]) -> dict[str, int]:
    return {name: int(count) for name, count in counts.items()}


def _rounded(counts: Mapping[str, float], name: str) -> float:
    return round(counts.get(name, 0.0), 3)


def _mean_limit(counts: Mapping[str, float], kind: str) -> float | None:
    readings = counts.get(f"limit_readings|{kind}")
    return round(counts[f"limit|{kind}"] / readings, 3) if readings else None


def _by_priority(counts: Mapping[str, float]) -> dict[Priority, PriorityMetrics]:
    """Return the numbers by priority, `normal` as what is left of all; empty where all is normal."""
    named: dict[Priority, Counts] = {}
    for key, number in counts.items():
        priority, _, name = key.rpartition(":")
        if priority:
            named.setdefault(Priority(priority), {})[name] = number
    if not named:
        return {}
    rest: Counts = {"started": counts.get("started", 0)}
    rest |= {key: number for key, number in counts.items() if key.startswith("operation_ms|")}
    for name in ("waits", "wait_seconds"):
        rest[name] = sum(counts.get(f"{name}|{kind}", 0) for kind in BY_PRIORITY)
    for numbers in named.values():
        for name, number in numbers.items():
            rest[name] = rest.get(name, 0) - number
    every = {**named, Priority.NORMAL: rest}
    return {priority: PriorityMetrics.of(every[priority]) for priority in Priority if priority in every}
