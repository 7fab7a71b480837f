"""The methods of both clients, each described once by what it asks the API for."""

from collections.abc import Iterable
from typing import Any, Final, Unpack

from durable_retry.client.documents import (
    OperationFailed,
    OperationFields,
    PauseFields,
    ReplayFields,
    RestartFields,
    operation_document,
)
from durable_retry.client.filters import (
    BulkOptions,
    BulkVerb,
    CauseFilters,
    Change,
    CountedDeadLetters,
    DeadLetterFilters,
    OpenDeadLetters,
    OperationFilters,
    ReplayManyOptions,
    SagaStepFields,
    SearchFilters,
    Selection,
    WorkflowFilters,
)
from durable_retry.client.flows import Flow, Pages
from durable_retry.client.methods import ListMethod, Method
from durable_retry.client.steering import Steering
from durable_retry.console.bulk.document import (
    BulkActionDocument,
    BulkItemDocument,
    BulkMatches,
    BulkReplayDocument,
    MatchedDeadLetters,
)
from durable_retry.console.bulk.shapes import FINISHED_REPLAY
from durable_retry.console.finding.found import FoundItem
from durable_retry.engine.base.answers import Page
from durable_retry.engine.base.names import OperationState
from durable_retry.engine.dead_letters.document import CauseDocument, DeadLetterDocument, StartedReplay
from durable_retry.engine.dead_letters.numbers import DeadLetterCount, DeadLetterGroup
from durable_retry.engine.operations.document import ListedOperation, OperationDocument, SteeredOperation
from durable_retry.engine.workflows.document import BatchDocument, BatchSummary, SagaDocument
from durable_retry.engine.workflows.restart import RestartedSaga
from durable_retry.engine.workflows.shapes import BatchState, SagaState

_MOVING: Final = frozenset({SagaState.RUNNING, SagaState.COMPENSATING})


def _bulk_has_ended(document: BulkReplayDocument | BulkActionDocument) -> bool:
    return document.status in FINISHED_REPLAY


class Resources(Steering):
    """The calls of the API.

    Raises:
        RefusedError: There is no such id, its state does not allow the call, a filter is unknown.
        UnreachableError: There was no answer.
    """

    @ListMethod
    def operations(self, **filters: Unpack[OperationFilters]) -> Pages[ListedOperation]:
        """Read operations, the newest first, each page when it is needed."""
        return self._pages(Page[ListedOperation], ("operations",), filters)

    @ListMethod
    def search(self, **filters: Unpack[SearchFilters]) -> Pages[FoundItem]:
        """Read what matches, of every type."""
        return self._pages(Page[FoundItem], ("search",), filters)

    @Method
    def get(self, operation_id: str) -> Flow[OperationDocument]:
        """Return an operation."""
        return self._read(OperationDocument, "operations", operation_id)

    @Method
    def wait(self, operation_id: str, *, timeout_seconds: float) -> Flow[OperationDocument]:
        """Wait until an operation has succeeded, looking every 0.25 s at first and every 5 s later.

        Raises:
            OperationFailed: It is a dead letter, or was cancelled.
            TimeoutError: It has not ended in this time, and keeps running.
        """
        operation = yield from self._wait_for(
            OperationDocument,
            *("operations", operation_id),
            has_ended=lambda document: document.is_finished,
            timeout_seconds=timeout_seconds,
        )
        if operation.status is not OperationState.SUCCEEDED:
            raise OperationFailed(operation.to_json())
        return operation

    @Method
    def cancel(self, operation_id: str) -> Flow[SteeredOperation]:
        """Ask an operation to end; an attempt under way ends first. One that has ended is refused (409)."""
        return self._act(SteeredOperation, "operations", operation_id, "cancel")

    @Method
    def retry_now(self, operation_id: str) -> Flow[SteeredOperation]:
        """End the present wait of an operation; one that does not wait is refused (409)."""
        return self._act(SteeredOperation, "operations", operation_id, "retry-now")

    @Method
    def pause(self, operation_id: str, **pause: Unpack[PauseFields]) -> Flow[SteeredOperation]:
        """Let an operation do nothing for a while; one that has ended or is paused is refused (409)."""
        return self._act(SteeredOperation, "operations", operation_id, "pause", body=pause, repeats=False)

    @Method
    def resume(self, operation_id: str) -> Flow[SteeredOperation]:
        """Let a paused operation go on; one that is not paused is refused (409)."""
        return self._act(SteeredOperation, "operations", operation_id, "resume")

    @ListMethod
    def dead_letters(self, **filters: Unpack[DeadLetterFilters]) -> Pages[DeadLetterDocument]:
        """Read dead letters, the newest first."""
        return self._pages(Page[DeadLetterDocument], ("dead-letters",), filters)

    @Method
    def count_dead_letters(self, **filters: Unpack[CountedDeadLetters]) -> Flow[int]:
        """Count dead letters that match, however many there are."""
        found = yield from self._read(DeadLetterCount, "dead-letters", "count", **filters)
        return found.count

    @Method
    def dead_letter(self, dead_letter_id: str) -> Flow[DeadLetterDocument]:
        """Return a dead letter."""
        return self._read(DeadLetterDocument, "dead-letters", dead_letter_id)

    @Method
    def replay(self, dead_letter_id: str, **replay: Unpack[ReplayFields]) -> Flow[str]:
        """Replay a dead letter, and return the operation's id.

        It is not sent again when its answer is lost: the dead letter shows whether it was replayed. One that
        was replayed or archived is refused (409).
        """
        path = ("dead-letters", dead_letter_id, "replay")
        started = yield from self._act(StartedReplay, *path, body=replay, repeats=False)
        return started.operation_id

    @Method
    def archive(self, dead_letter_id: str) -> Flow[DeadLetterDocument]:
        """Put a dead letter away."""
        return self._act(DeadLetterDocument, "dead-letters", dead_letter_id, "archive")

    @Method
    def restore(self, dead_letter_id: str) -> Flow[DeadLetterDocument]:
        """Open an archived dead letter again."""
        return self._act(DeadLetterDocument, "dead-letters", dead_letter_id, "restore")

    @Method
    def add_note(self, dead_letter_id: str, text: str) -> Flow[DeadLetterDocument]:
        """Add a note to a dead letter. It is not sent again when its answer is lost."""
        path = ("dead-letters", dead_letter_id, "notes")
        return self._act(DeadLetterDocument, *path, body={"text": text}, repeats=False)

    @ListMethod
    def causes(self, **filters: Unpack[CauseFilters]) -> Pages[DeadLetterGroup]:
        """Read the root causes of open dead letters, the one with the most of them first."""
        return self._pages(Page[DeadLetterGroup], ("dead-letters", "groups"), filters)

    @Method
    def cause(self, group: str) -> Flow[CauseDocument]:
        """Return a root cause with its latest dead letter."""
        return self._read(CauseDocument, "dead-letters", "groups", group)

    @Method
    def acknowledge_cause(self, group: str) -> Flow[DeadLetterGroup]:
        """Say that you look into a cause."""
        return self._act(DeadLetterGroup, "dead-letters", "groups", group, "acknowledge")

    @Method
    def assign_cause(self, group: str, to: str | None) -> Flow[DeadLetterGroup]:
        """Say who looks into a cause; None for nobody."""
        return self._act(DeadLetterGroup, "dead-letters", "groups", group, "assign", body={"to": to})

    @Method
    def resolve_cause(self, group: str) -> Flow[DeadLetterGroup]:
        """Say that a cause is mended; a dead letter that is made later shows that it came back."""
        return self._act(DeadLetterGroup, "dead-letters", "groups", group, "resolve")

    @Method
    def note_cause(self, group: str, text: str) -> Flow[DeadLetterGroup]:
        """Add a note to a cause. It is not sent again when its answer is lost."""
        path = ("dead-letters", "groups", group, "notes")
        return self._act(DeadLetterGroup, *path, body={"text": text}, repeats=False)

    @ListMethod
    def batches(self, **filters: Unpack[WorkflowFilters]) -> Pages[BatchSummary]:
        """Read batches, the newest first."""
        return self._pages(Page[BatchSummary], ("batches",), filters)

    @Method
    def submit_batch(
        self,
        items: Iterable[OperationFields],
        *,
        key: str | None = None,
        max_concurrency: int = 10,
        tolerated_failures: int = 0,
    ) -> Flow[str]:
        """Submit operations as a batch, and return its id; with a key it is sent again without harm."""
        body: dict[str, Any] = {
            "items": [operation_document(None, (), item) for item in items],
            "max_concurrency": max_concurrency,
            "tolerated_failures": tolerated_failures,
        }
        return self._start("batch_id", "batches", body=body | ({} if key is None else {"key": key}))

    @Method
    def batch(self, batch_id: str) -> Flow[BatchDocument]:
        """Return a batch with its items."""
        return self._read(BatchDocument, "batches", batch_id)

    @Method
    def wait_for_batch(self, batch_id: str, *, timeout_seconds: float) -> Flow[BatchDocument]:
        """Wait until a batch has ended, well or not; `TimeoutError` when it has not in this time."""
        return self._wait_for(
            BatchDocument,
            *("batches", batch_id),
            has_ended=lambda document: document.status is not BatchState.RUNNING,
            timeout_seconds=timeout_seconds,
        )

    @ListMethod
    def sagas(self, **filters: Unpack[WorkflowFilters]) -> Pages[SagaDocument]:
        """Read sagas, the newest first."""
        return self._pages(Page[SagaDocument], ("sagas",), filters)

    @Method
    def submit_saga(self, steps: Iterable[SagaStepFields], *, key: str | None = None) -> Flow[str]:
        """Submit a saga, and return its id; with a key it is sent again without harm."""
        body = {"steps": list(steps), **({} if key is None else {"key": key})}
        return self._start("saga_id", "sagas", body=body)

    @Method
    def saga(self, saga_id: str) -> Flow[SagaDocument]:
        """Return a saga."""
        return self._read(SagaDocument, "sagas", saga_id)

    @Method
    def restart_saga(self, saga_id: str, **restart: Unpack[RestartFields]) -> Flow[RestartedSaga]:
        """Run a saga that was compensated again; one that runs or succeeded is refused (409)."""
        return self._act(RestartedSaga, "sagas", saga_id, "restart", body=restart, repeats=False)

    @Method
    def wait_for_saga(self, saga_id: str, *, timeout_seconds: float) -> Flow[SagaDocument]:
        """Wait until a saga has ended, well or not; `TimeoutError` when it has not in this time."""
        return self._wait_for(
            SagaDocument,
            *("sagas", saga_id),
            has_ended=lambda document: document.status not in _MOVING,
            timeout_seconds=timeout_seconds,
        )

    @Method
    def count_for_replay(self, which: OpenDeadLetters) -> Flow[int]:
        """Count the open dead letters that `replay_many` would replay, and replay none."""
        body = {"filter": which, "dry_run": True}
        counted = yield from self._act(MatchedDeadLetters, "dead-letters", "replays", body=body)
        return counted.matched

    @Method
    def preview_replay(self, which: OpenDeadLetters, **change: Unpack[Change]) -> Flow[MatchedDeadLetters]:
        """Count as `count_for_replay`, and return what a change does to the newest three."""
        body = {"filter": which, "dry_run": True, **change}
        return self._act(MatchedDeadLetters, "dead-letters", "replays", body=body)

    @Method
    def replay_many(self, which: OpenDeadLetters, **options: Unpack[ReplayManyOptions]) -> Flow[str]:
        """Replay the open dead letters that match, `{}` for all, and return the id of the bulk replay."""
        return self._start("replay_id", "dead-letters", "replays", body={"filter": which, **options})

    @Method
    def replay_of_many(self, replay_id: str) -> Flow[BulkReplayDocument]:
        """Return how far a bulk replay is."""
        return self._read(BulkReplayDocument, "dead-letters", "replays", replay_id)

    @Method
    def wait_for_replay_of_many(self, replay_id: str, *, timeout_seconds: float) -> Flow[BulkReplayDocument]:
        """Wait until every replay has ended, well or not; `TimeoutError` when one has not in this time."""
        path = ("dead-letters", "replays", replay_id)
        return self._wait_for(
            BulkReplayDocument, *path, has_ended=_bulk_has_ended, timeout_seconds=timeout_seconds
        )

    @Method
    def cancel_replay_of_many(self, replay_id: str) -> Flow[BulkReplayDocument]:
        """Cancel a bulk replay; what was replayed stays so."""
        return self._delete(BulkReplayDocument, "dead-letters", "replays", replay_id)

    @Method
    def count_for_action(self, action: BulkVerb, **which: Unpack[Selection]) -> Flow[BulkMatches]:
        """Count what `act_on_many` would act on, and do nothing."""
        return self._act(BulkMatches, "bulk-actions", body={"action": action, "dry_run": True, **which})

    @Method
    def act_on_many(self, action: BulkVerb, **options: Unpack[BulkOptions]) -> Flow[str]:
        """Act on the dead letters or operations of `filter` or `ids`, and return the id of the action."""
        return self._start("action_id", "bulk-actions", body={"action": action, **options})

    @Method
    def action_on_many(self, action_id: str) -> Flow[BulkActionDocument]:
        """Return how far an action on many is."""
        return self._read(BulkActionDocument, "bulk-actions", action_id)

    @ListMethod
    def items_of_action(self, action_id: str) -> Pages[BulkItemDocument]:
        """Read what became of each item of an action on many, a bulk replay too; the latest first."""
        return self._pages(Page[BulkItemDocument], ("bulk-actions", action_id, "items"), {})

    @Method
    def wait_for_action_on_many(self, action_id: str, *, timeout_seconds: float) -> Flow[BulkActionDocument]:
        """Wait until all that was started has ended; `TimeoutError` when it has not in this time."""
        path = ("bulk-actions", action_id)
        return self._wait_for(
            BulkActionDocument, *path, has_ended=_bulk_has_ended, timeout_seconds=timeout_seconds
        )

    @Method
    def cancel_action_on_many(self, action_id: str) -> Flow[BulkActionDocument]:
        """Cancel an action on many; what was done stays done."""
        return self._delete(BulkActionDocument, "bulk-actions", action_id)
