"""What both clients do beside single operations: lists, batches, sagas, dead letters, actions on many.

A flow says what is asked for; `Resources` sends it with calls that block, `AsyncResources` with calls to
await.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, Final, TypedDict, Unpack

from durable_retry.client import flows
from durable_retry.client.documents import OperationFields, operation_document
from durable_retry.console.bulk.document import BulkActionDocument, BulkReplayDocument
from durable_retry.console.bulk.shapes import ReplayState
from durable_retry.console.finding.found import FoundItem
from durable_retry.engine.base.answers import Page
from durable_retry.engine.dead_letters.document import DeadLetterDocument
from durable_retry.engine.operations.document import ListedOperation
from durable_retry.engine.workflows.document import BatchDocument, BatchSummary, SagaDocument
from durable_retry.engine.workflows.shapes import BatchState, SagaState

_MOVING: Final = frozenset(
    {
        BatchState.RUNNING,
        SagaState.COMPENSATING,
        ReplayState.PENDING,
        ReplayState.WAITING_CIRCUIT,
    }
)
"""States of a batch, a saga or an action on many that has not ended; all say `running` alike."""


class OperationFilters(TypedDict, total=False):
    """The operations that a list has; what is left out does not matter. Instants are RFC 3339."""

    status: str
    dependency: str
    handler: str
    source: str
    key: str
    correlation_id: str
    q: str
    created_after: str
    created_before: str


class SearchFilters(OperationFilters, total=False):
    """What a search finds; `type` is such as `operation` or `dead_letter`."""

    type: str


class DeadLetterFilters(TypedDict, total=False):
    """The dead letters that a list has; instants are RFC 3339."""

    status: str
    reason: str
    category: str
    dependency: str
    group: str
    key: str
    correlation_id: str
    q: str
    created_after: str
    created_before: str


def batch_document(items: Iterable[OperationFields], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a batch as JSON; of the options, those that were given."""
    given = {name: value for name, value in options.items() if value is not None}
    return {"items": [operation_document(None, (), item) for item in items], **given}


def saga_document(steps: Iterable[Mapping[str, Any]], key: str | None) -> dict[str, Any]:
    """Return the body of a saga as JSON."""
    return {"steps": [dict(step) for step in steps], **({} if key is None else {"key": key})}


def has_ended(document: BatchSummary | SagaDocument | BulkReplayDocument | BulkActionDocument) -> bool:
    """Whether a batch, a saga or an action on many moves no more."""
    return document.status not in _MOVING


class Resources(ABC):
    """The calls of `Client` beside those for one operation. Lists read further pages while they are read.

    Raises:
        RefusedError: The API refused a call: an unknown filter, no such id.
        UnreachableError: There was no answer.
    """

    _tries: int

    @abstractmethod
    def _run_flow[T](self, flow: flows.Flow[T]) -> T: ...

    def _pages[T](self, model: type[Page[T]], path: tuple[str, ...], query: Mapping[str, Any]) -> Iterator[T]:
        cursor: str | None = ""
        while cursor is not None:
            page = self._run_flow(flows.page(self._tries, model, path, query, cursor))
            yield from page.items
            cursor = page.next_cursor

    def operations(self, **filters: Unpack[OperationFilters]) -> Iterator[ListedOperation]:
        """Read operations, the newest first."""
        return self._pages(Page[ListedOperation], ("operations",), filters)

    def search(self, **filters: Unpack[SearchFilters]) -> Iterator[FoundItem]:
        """Read what matches, of every type."""
        return self._pages(Page[FoundItem], ("search",), filters)

    def dead_letters(self, **filters: Unpack[DeadLetterFilters]) -> Iterator[DeadLetterDocument]:
        """Read dead letters, the newest first."""
        return self._pages(Page[DeadLetterDocument], ("dead-letters",), filters)

    def batches(self) -> Iterator[BatchSummary]:
        """Read batches, the newest first."""
        return self._pages(Page[BatchSummary], ("batches",), {})

    def sagas(self) -> Iterator[SagaDocument]:
        """Read sagas, the newest first."""
        return self._pages(Page[SagaDocument], ("sagas",), {})

    def dead_letter(self, dead_letter_id: str) -> DeadLetterDocument:
        """Return a dead letter."""
        return self._run_flow(flows.read(self._tries, DeadLetterDocument, "dead-letters", dead_letter_id))

    def archive(self, dead_letter_id: str) -> DeadLetterDocument:
        """Put a dead letter away."""
        return self._run_flow(flows.act_on_dead_letter(self._tries, dead_letter_id, "archive"))

    def restore(self, dead_letter_id: str) -> DeadLetterDocument:
        """Open an archived dead letter again."""
        return self._run_flow(flows.act_on_dead_letter(self._tries, dead_letter_id, "restore"))

    def add_note(self, dead_letter_id: str, text: str) -> DeadLetterDocument:
        """Add a note to a dead letter."""
        return self._run_flow(flows.act_on_dead_letter(self._tries, dead_letter_id, "notes", {"text": text}))

    def submit_batch(
        self,
        items: Iterable[OperationFields],
        *,
        key: str | None = None,
        max_concurrency: int | None = None,
        tolerated_failures: int | None = None,
    ) -> str:
        """Submit operations as a batch, and return its id; with a key it is sent again without harm."""
        options = {
            "key": key,
            "max_concurrency": max_concurrency,
            "tolerated_failures": tolerated_failures,
        }
        return self._run_flow(flows.start(self._tries, "batches", batch_document(items, options), "batch_id"))

    def batch(self, batch_id: str) -> BatchDocument:
        """Return a batch with its items."""
        return self._run_flow(flows.read(self._tries, BatchDocument, "batches", batch_id))

    def wait_for_batch(self, batch_id: str, *, timeout_seconds: float) -> BatchDocument:
        """Wait until a batch has ended, well or not; `TimeoutError` when it has not in this time."""
        return self._run_flow(
            flows.wait_for(self._tries, BatchDocument, ("batches", batch_id), has_ended, timeout_seconds)
        )

    def submit_saga(self, steps: Iterable[Mapping[str, Any]], *, key: str | None = None) -> str:
        """Submit a saga, and return its id; with a key it is sent again without harm."""
        return self._run_flow(flows.start(self._tries, "sagas", saga_document(steps, key), "saga_id"))

    def saga(self, saga_id: str) -> SagaDocument:
        """Return a saga."""
        return self._run_flow(flows.read(self._tries, SagaDocument, "sagas", saga_id))

    def wait_for_saga(self, saga_id: str, *, timeout_seconds: float) -> SagaDocument:
        """Wait until a saga has ended, well or not; `TimeoutError` when it has not in this time."""
        return self._run_flow(
            flows.wait_for(self._tries, SagaDocument, ("sagas", saga_id), has_ended, timeout_seconds)
        )

    def replay_many(self, filters: DeadLetterFilters, **options: Any) -> str:
        """Replay the open dead letters that a filter finds, and return the id; options as of the API."""
        body = {"filter": dict(filters), **options}
        return self._run_flow(flows.start(self._tries, "dead-letters/replays", body, "replay_id"))

    def replay_of_many(self, replay_id: str) -> BulkReplayDocument:
        """Return how far a replay of many is."""
        return self._run_flow(
            flows.read(self._tries, BulkReplayDocument, "dead-letters", "replays", replay_id)
        )

    def act_on_many(self, action: str, **options: Any) -> str:
        """Start `cancel`, `retry_now`, `archive` or `replay` for many, and return the id.

        Args:
            action: What to do.
            options: `filter` or `ids`, `rate_per_second` and `note`, as of the API.
        """
        body = {"action": action, **options}
        return self._run_flow(flows.start(self._tries, "bulk-actions", body, "action_id"))

    def action_on_many(self, action_id: str) -> BulkActionDocument:
        """Return how far an action on many is."""
        return self._run_flow(flows.read(self._tries, BulkActionDocument, "bulk-actions", action_id))


class AsyncResources(ABC):
    """The calls of `AsyncClient` beside those for one operation; see `Resources`."""

    _tries: int

    @abstractmethod
    async def _run_flow[T](self, flow: flows.Flow[T]) -> T: ...

    async def _pages[T](
        self, model: type[Page[T]], path: tuple[str, ...], query: Mapping[str, Any]
    ) -> AsyncIterator[T]:
        cursor: str | None = ""
        while cursor is not None:
            page = await self._run_flow(flows.page(self._tries, model, path, query, cursor))
            for item in page.items:
                yield item
            cursor = page.next_cursor

    def operations(self, **filters: Unpack[OperationFilters]) -> AsyncIterator[ListedOperation]:
        """See `Resources.operations`."""
        return self._pages(Page[ListedOperation], ("operations",), filters)

    def search(self, **filters: Unpack[SearchFilters]) -> AsyncIterator[FoundItem]:
        """See `Resources.search`."""
        return self._pages(Page[FoundItem], ("search",), filters)

    def dead_letters(self, **filters: Unpack[DeadLetterFilters]) -> AsyncIterator[DeadLetterDocument]:
        """See `Resources.dead_letters`."""
        return self._pages(Page[DeadLetterDocument], ("dead-letters",), filters)

    def batches(self) -> AsyncIterator[BatchSummary]:
        """See `Resources.batches`."""
        return self._pages(Page[BatchSummary], ("batches",), {})

    def sagas(self) -> AsyncIterator[SagaDocument]:
        """See `Resources.sagas`."""
        return self._pages(Page[SagaDocument], ("sagas",), {})

    async def dead_letter(self, dead_letter_id: str) -> DeadLetterDocument:
        """See `Resources.dead_letter`."""
        return await self._run_flow(
            flows.read(self._tries, DeadLetterDocument, "dead-letters", dead_letter_id)
        )

    async def archive(self, dead_letter_id: str) -> DeadLetterDocument:
        """See `Resources.archive`."""
        return await self._run_flow(flows.act_on_dead_letter(self._tries, dead_letter_id, "archive"))

    async def restore(self, dead_letter_id: str) -> DeadLetterDocument:
        """See `Resources.restore`."""
        return await self._run_flow(flows.act_on_dead_letter(self._tries, dead_letter_id, "restore"))

    async def add_note(self, dead_letter_id: str, text: str) -> DeadLetterDocument:
        """See `Resources.add_note`."""
        flow = flows.act_on_dead_letter(self._tries, dead_letter_id, "notes", {"text": text})
        return await self._run_flow(flow)

    async def submit_batch(
        self,
        items: Iterable[OperationFields],
        *,
        key: str | None = None,
        max_concurrency: int | None = None,
        tolerated_failures: int | None = None,
    ) -> str:
        """See `Resources.submit_batch`."""
        options = {
            "key": key,
            "max_concurrency": max_concurrency,
            "tolerated_failures": tolerated_failures,
        }
        document = batch_document(items, options)
        return await self._run_flow(flows.start(self._tries, "batches", document, "batch_id"))

    async def batch(self, batch_id: str) -> BatchDocument:
        """See `Resources.batch`."""
        return await self._run_flow(flows.read(self._tries, BatchDocument, "batches", batch_id))

    async def wait_for_batch(self, batch_id: str, *, timeout_seconds: float) -> BatchDocument:
        """See `Resources.wait_for_batch`."""
        return await self._run_flow(
            flows.wait_for(self._tries, BatchDocument, ("batches", batch_id), has_ended, timeout_seconds)
        )

    async def submit_saga(self, steps: Iterable[Mapping[str, Any]], *, key: str | None = None) -> str:
        """See `Resources.submit_saga`."""
        return await self._run_flow(flows.start(self._tries, "sagas", saga_document(steps, key), "saga_id"))

    async def saga(self, saga_id: str) -> SagaDocument:
        """See `Resources.saga`."""
        return await self._run_flow(flows.read(self._tries, SagaDocument, "sagas", saga_id))

    async def wait_for_saga(self, saga_id: str, *, timeout_seconds: float) -> SagaDocument:
        """See `Resources.wait_for_saga`."""
        return await self._run_flow(
            flows.wait_for(self._tries, SagaDocument, ("sagas", saga_id), has_ended, timeout_seconds)
        )

    async def replay_many(self, filters: DeadLetterFilters, **options: Any) -> str:
        """See `Resources.replay_many`."""
        body = {"filter": dict(filters), **options}
        return await self._run_flow(flows.start(self._tries, "dead-letters/replays", body, "replay_id"))

    async def replay_of_many(self, replay_id: str) -> BulkReplayDocument:
        """See `Resources.replay_of_many`."""
        return await self._run_flow(
            flows.read(self._tries, BulkReplayDocument, "dead-letters", "replays", replay_id)
        )

    async def act_on_many(self, action: str, **options: Any) -> str:
        """See `Resources.act_on_many`."""
        body = {"action": action, **options}
        return await self._run_flow(flows.start(self._tries, "bulk-actions", body, "action_id"))

    async def action_on_many(self, action_id: str) -> BulkActionDocument:
        """See `Resources.action_on_many`."""
        return await self._run_flow(flows.read(self._tries, BulkActionDocument, "bulk-actions", action_id))
