"""App settings of what takes operations: limits of HTTP, keys of messages, concurrency, backpressure."""

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

from pydantic import AfterValidator, BeforeValidator

from durable_retry.base.names import OPERATIONS_QUEUE, QUEUE_SOURCE
from durable_retry.base.validation import InvalidInputError, Problem, pointer_problem
from durable_retry.plugins import sources, why_absent
from durable_retry.rules.intake import LagThresholds
from durable_retry.settings.configuration import APP_ROOT, host_extension
from durable_retry.settings.group import SettingsGroup, seconds, setting
from durable_retry.settings.mistakes import HOST_JSON

_LAG: Final = LagThresholds()


def _sources_with_pointers() -> tuple[str, ...]:
    """Return the sources whose messages `KEY_POINTERS` name."""
    return (QUEUE_SOURCE, *(name for name, source in sources().items() if source.has_pointers))


def _split_pointers(by_suffix: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Read the JSON pointers of each source, separated by commas; "" is the default of all sources."""
    pointers: dict[str, tuple[str, ...]] = {}
    wrong, known = [], _sources_with_pointers()
    for suffix, text in by_suffix.items():
        source = suffix.lower().removeprefix("_")
        if source and source not in known:
            wrong.append(Problem(suffix, f"names no source; there are {', '.join(known)}"))
        pointers[source] = tuple(filter(None, (part.strip() for part in text.split(","))))
        mistakes = ((pointer, pointer_problem(pointer)) for pointer in pointers[source])
        wrong.extend(Problem(suffix, f"{pointer!r} {detail}") for pointer, detail in mistakes if detail)
    if wrong:
        raise InvalidInputError(wrong)
    return pointers


def _check_order(order: str) -> str:
    if absent := why_absent(order):
        raise ValueError(f"must not be {order}, which {absent}")
    return order


def _check_retries(count: int) -> int:
    if count == 0:  # A failed batch would be lost.
        raise ValueError("must be at least 1, or -1 for ever")
    return count


class IntakeSettings(SettingsGroup):
    """What names the operations of messages, and how much is taken at once."""

    heading: ClassVar[str] = "Intake"

    key_pointers: Annotated[Mapping[str, tuple[str, ...]], BeforeValidator(_split_pointers)] = setting(
        "JSON pointers into an operation's body, separated by commas, whose values make its key. "
        "`KEY_POINTERS_KAFKA` and the like apply to one source.",
        {},
    )
    # A submission and its operation take 8.5 ms of a processor, and twice as long where much else runs.
    http_concurrency: int = setting(
        "Submissions over HTTP under way at once in one process; a further one is answered 503; 0 = no "
        "limit.",
        50,
        least=0,
    )
    http_waits: int = setting(
        "Submissions over HTTP in one process that wait for their end (`Prefer: wait`) at once; a further "
        "one is answered 202 without a wait; 0 = no limit.",
        200,
        least=0,
    )
    http_task_hub_lag_seconds: float = seconds(
        "Submissions over HTTP are answered 503 while an operation has not begun for so long; 0 = off.", 300.0
    )
    intake_order: Annotated[str, AfterValidator(_check_order)] = setting(
        "`partition`: starts the operations of one partition one after the other, in order. `order_key`: "
        "also gives those without an `order_key` one of their partition or session, so that each runs "
        "when the one before it has ended.",
        "none",
        choices=("none", "partition", "order_key"),
    )
    intake_concurrency: int = setting(
        "Starts in progress at once in one process, from all sources but HTTP.", 16, least=1
    )
    intake_retries: Annotated[int, AfterValidator(_check_retries)] = setting(
        "The platform's retries of a batch or timer; -1 = without end; 0 is refused.", -1, least=-1
    )
    intake_task_hub_lag_seconds: float = seconds(
        "The task hub is far behind when an operation has not begun after this time; 0 = off.",
        _LAG.task_hub_seconds,
    )
    intake_dependency_lag_seconds: float = seconds(
        "A dependency is far behind when an operation still waits for the circuit or is throttled this long "
        "after its start; 0 = off.",
        _LAG.dependency_seconds,
    )
    intake_pause_seconds: float = seconds(
        "The longest that one delivery waits while the task hub or a dependency is far behind.", 20.0
    )

    @classmethod
    def texts_in(cls, environ: Mapping[str, str]) -> dict[str, Any]:
        """Add the pointers of single sources: an empty one says that this source has none."""
        name = cls.name_of("key_pointers")
        pointers = {
            variable.removeprefix(name): text
            for variable, text in environ.items()
            if variable == name or variable.startswith(f"{name}_")
        }
        return super().texts_in(environ) | ({name: pointers} if pointers else {})

    @property
    def keeps_order(self) -> bool:
        """Whether operations of one partition are started one after the other, in the partition's order."""
        return self.intake_order != "none"

    @property
    def gives_order_keys(self) -> bool:
        """Whether operations of one partition also run one after the other."""
        return self.intake_order == "order_key"

    @property
    def lag(self) -> LagThresholds:
        """Limits of backpressure."""
        return LagThresholds(
            task_hub_seconds=self.intake_task_hub_lag_seconds,
            dependency_seconds=self.intake_dependency_lag_seconds,
        )

    @property
    def http_lag(self) -> LagThresholds:
        """Limits of the task hub alone: an operation whose dependency is down waits at no cost."""
        return LagThresholds(task_hub_seconds=self.http_task_hub_lag_seconds, dependency_seconds=0.0)

    def pointers_for(self, source: str) -> tuple[str, ...]:
        """Return the key pointers of one source; empty when its own ids are the keys."""
        if source not in _sources_with_pointers():
            return ()
        return self.key_pointers.get(source, self.key_pointers.get("", ()))


@cache
def intake_settings() -> IntakeSettings:
    """Return this process's settings, read once; see `SettingsGroup.read`."""
    return IntakeSettings.read(os.environ)


def places() -> dict[str, str]:
    """Return the scopes in which the ids of messages are unique, by the sources that have their settings."""
    known = {QUEUE_SOURCE: OPERATIONS_QUEUE} | {name: source.place() for name, source in sources().items()}
    return {name: place for name, place in known.items() if place is not None}


@cache
def max_dequeue_count(host_json: Path = APP_ROOT / HOST_JSON) -> int:
    """Return after how many deliveries the host moves a queue message to the poison queue; 5 by default."""
    return int(host_extension("queues", "maxDequeueCount", default=5, host_json=host_json))
