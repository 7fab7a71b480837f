"""A task hub for the parts of batches and sagas: operations end as a test sets them, announced or not."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any
from unittest.mock import Mock, patch

from durable_retry.base.names import ENDED_EVENT, Category, DeadLetterReason, OperationState
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations.actions import KeyReused, Replayed, Started, SubmitResult
from durable_retry.rules.operations.completion import Completion
from durable_retry.rules.operations.operation import OperationInput, fingerprint_of
from durable_retry.rules.operations.status import OperationStatus
from durable_retry.rules.retry.history import History
from tests.support.builders import NOON
from tests.support.cuts import CutError, PartStage

type Fate = Callable[[OperationInput], OperationState]


@dataclass
class PartHub:
    """Takes operations over as `operations.actions` does.

    Attributes:
        fate: How each operation ends.
        rng: Decides about cuts, and about reports that are late, doubled or lost.
        started: Key of every operation that was started, in order.
        most_running: The most that ran at once.
    """

    fate: Fate
    rng: Random
    cut_ratio: float = 0.0
    started: list[str] = field(default_factory=list)
    most_running: int = 0
    _operations: dict[str, OperationInput] = field(default_factory=dict)
    _running: dict[str, OperationInput] = field(default_factory=dict)

    async def submit(self, _hub: str, operation: OperationInput, **_: Any) -> SubmitResult:
        self._maybe_cut()
        known = self._operations.get(operation.operation_id)
        if known is None:
            self._operations[operation.operation_id] = operation
            self._running[operation.operation_id] = operation
            self.started.append(operation.key)
            self.most_running = max(self.most_running, len(self._running))
            self._maybe_cut()
            return Started()
        if fingerprint_of(known.to_json()) != fingerprint_of(operation.to_json()):
            return KeyReused()
        running = operation.operation_id in self._running
        return Replayed(
            self._document(known, OperationState.RUNNING if running else self.fate(known)), not running
        )

    def move_on(self, stage: PartStage) -> None:
        """Let some operations end, and report most of it: some twice, some never, some in nonsense."""
        for operation_id in [each for each in self._running if self.rng.random() < 0.5]:
            operation = self._running.pop(operation_id)
            completion = Completion.of(self._document(operation, self.fate(operation)))
            assert completion is not None
            for _ in range(self.rng.choice([0, 1, 1, 1, 2])):
                stage.raise_event(ENDED_EVENT, completion.to_json())
            if self.rng.random() < 0.1:
                stage.raise_event(ENDED_EVENT, {"operation_id": operation_id})

    async def find_status(self, _hub: str, operation_id: str) -> dict[str, Any] | None:
        self._maybe_cut()
        operation = self._operations.get(operation_id)
        if operation is None:
            return None
        state = OperationState.RUNNING if operation_id in self._running else self.fate(operation)
        return self._document(operation, state)

    async def read_instance(self, instance_id: str) -> Any:
        return Mock(input={"operation": self._operations[instance_id].to_json()})

    @contextmanager
    def in_place(self) -> Iterator[None]:
        with (
            patch("durable_retry.features.workflows.batches.submit", self.submit),
            patch("durable_retry.features.in_process.start.submit", self.submit),
            patch("durable_retry.features.in_process.start.find_status", self.find_status),
            patch.object(TaskHub, "read_instance", self.read_instance),
        ):
            yield

    def _maybe_cut(self) -> None:
        if self.rng.random() < self.cut_ratio:
            raise CutError

    def _document(self, operation: OperationInput, state: OperationState) -> dict[str, Any]:
        failed = state is OperationState.DEAD_LETTERED
        letter = {
            "id": "dl-1",
            "category": Category.BUSINESS_RULE.value,
            "reason": DeadLetterReason.REJECTED_BY_DEPENDENCY.value,
            "detail": "rejected",
        }
        status = OperationStatus(
            operation=operation,
            state=state,
            history=History(attempt_count=1),
            updated_at=NOON,
            dead_letter=letter if failed else None,
        )
        return status.to_json()
