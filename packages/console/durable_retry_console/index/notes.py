"""Notes for the index of operations: collected in memory, written together at most once a second.

No operation waits for the index, or fails with it. The first entry after a pause is written within 50 ms. An
entry that comes within a second of a write waits for the next one; meanwhile the process has a row under
`writer` of the index, which is renewed while it is busy and deleted afterwards. When a process ends before it
has written, its row stays, and upkeep adds what it lost from the task hub (`index.reconcile`).
"""

import asyncio
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, override

from azure.core.exceptions import ServiceRequestTimeoutError

from durable_retry.base.json_forms import from_rfc3339, microseconds
from durable_retry.base.names import FINISHED, PAUSE_EVENT, TURN_NAMES, OperationState, Priority
from durable_retry.rules import facts
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.retry.history import WaitKind, kind_after
from durable_retry.runtime import clock
from durable_retry.storage.clients import run_in_pool
from durable_retry.telemetry.facts import subscribe
from durable_retry_console.background import BackgroundWriter
from durable_retry_console.index.store import (
    TABLE,
    OperationEntry,
    OperationList,
    end_gap,
    row_of_gap,
    rows_of_entries,
)
from durable_retry_console.states import HELD_UP, last_error

ERROR_CHARS: Final = 300
"""Characters of an error that the index has."""

_SOON_SECONDS: Final = 0.05
_PAUSE_SECONDS: Final = 1.0
_RENEWED_SECONDS: Final = 30.0
_DROPPED_WITHIN: Final = timedelta(seconds=5)
"""Far longer than an operation takes from its acceptance to its note."""

# A list, and where it has an operation.
type _Place = tuple[OperationList, tuple[datetime, str]]


class IndexWriter(BackgroundWriter[_Place, OperationEntry]):
    """Holds one entry for each place in a list, and announces what waits."""

    def __init__(self) -> None:
        super().__init__("the index of operations", _PAUSE_SECONDS, _SOON_SECONDS)
        self._worker = uuid.uuid4().hex[:12]
        self._written = 0  # writes so far
        # When its row under `writer` was last written, in monotonic seconds; None while it has none.
        self._renewed: float | None = None

    def note(self, kind: OperationList, entry: OperationEntry) -> None:
        """Hold an entry, in place of one that the index would pass over for it."""
        self.hold((kind, entry.position), entry)

    def change(self, kind: OperationList, entry: OperationEntry) -> None:
        """Hold an entry in place of one that is not written yet, and nothing where there is none."""
        with self._lock:
            if (kind, entry.position) in self.held:
                self.note(kind, entry)

    @property
    @override
    def _idle_seconds(self) -> float | None:
        return None if self._renewed is None else _RENEWED_SECONDS

    @override
    def _is_older(self, value: OperationEntry, known: OperationEntry) -> bool:
        return value.rank < known.rank

    @override
    def _announce(self) -> None:
        if self._renewed is None:
            self._renew()

    @override
    def _write(self, held: Mapping[_Place, OperationEntry]) -> None:
        self._written += 1
        name = f"{self._worker}-{self._written}"
        for table, rows in rows_of_entries(name, ((kind, entry) for (kind, _), entry in held.items())):
            self.replace(table, rows)
        if self.dropped_since is not None:
            self.replace(TABLE, [row_of_gap(name, self.dropped_since - _DROPPED_WITHIN)])
            self.dropped_since = None
        if self._renewed is None:
            return
        if not held:  # Nothing came for a while.
            self._renewed = None
            end_gap(self._worker)
        elif clock.monotonic_seconds() - self._renewed >= _RENEWED_SECONDS:
            self._renew()

    def _renew(self) -> None:
        self.replace(TABLE, [row_of_gap(self._worker, clock.now() - _DROPPED_WITHIN)])
        self._renewed = clock.monotonic_seconds()


WRITER: Final = IndexWriter()
"""The writer of this process."""


async def write_noted(seconds: float | None = 2.0) -> None:
    """Write what this process has noted, so that a list that is read next shows it; never raises.

    Args:
        seconds: How long to wait while storage hangs; the thread goes on writing. None waits for the end.
    """
    if WRITER.has_unwritten:
        with suppress(ServiceRequestTimeoutError, TimeoutError):
            async with asyncio.timeout(seconds):
                await run_in_pool(WRITER.flush)


def unwritten() -> tuple[int, datetime] | None:
    """Return how many entries wait for storage that fails, and since when; None while it takes them.

    They are lost if the process is killed now.
    """
    return None if WRITER.failing_since is None else (len(WRITER.held), WRITER.failing_since)


def record_facts() -> None:
    """Subscribe to what the index shows; each returns at once, and is written within a second."""
    subscribe(facts.Submitted, _note_submitted)
    subscribe(facts.StartUnanswered, _note_unanswered)
    subscribe(facts.AttemptHeld, _note_held)
    subscribe(facts.WaitBegun, _note_wait)
    subscribe(facts.ActedOn, _note_act)
    subscribe(facts.AttemptEnded, _note_attempt)
    subscribe(facts.DeadLetterKept, _note_dead_letter)
    subscribe(facts.OperationEnded, _note_end)


def _note_submitted(fact: facts.Submitted) -> None:
    if fact.outcome is facts.SubmissionOutcome.STARTED:
        WRITER.note(OperationList.ALL, _entry_of_operation(fact.operation))
        if fact.operation.start_at is not None:
            _note_state(fact.operation, OperationState.SCHEDULED)


def _note_unanswered(fact: facts.StartUnanswered) -> None:
    """Note an operation that may run; the lists leave out what the task hub does not have."""
    WRITER.note(OperationList.ALL, _entry_of_operation(fact.operation, was_answered=False))


def _note_held(fact: facts.AttemptHeld) -> None:
    _note_state(fact.operation, fact.kind.state)


def _note_wait(fact: facts.WaitBegun) -> None:
    if fact.kind == WaitKind.ORDER:
        _note_state(fact.operation, OperationState.WAITING_ORDER)


def _note_act(fact: facts.ActedOn) -> None:
    if fact.action != PAUSE_EVENT and fact.priority is None:
        return
    entry = _entry_of(fact.document, last_error(fact.document))
    if fact.priority is None:
        WRITER.note(OperationList.FAILED, replace(entry, status=OperationState.PAUSED))
        return
    changed = replace(entry, priority=Priority(fact.priority))
    WRITER.note(OperationList.ALL, replace(changed, status=None))
    WRITER.note(OperationList.FAILED, changed)


def _note_attempt(fact: facts.AttemptEnded) -> None:
    operation, outcome = fact.operation, fact.outcome
    if outcome.category is not None:
        _note_state(operation, kind_after(outcome.category).state, outcome.error)
    elif outcome.number > 1 or fact.was_held or not operation.begins_at_once:
        _note_state(operation, OperationState.SUCCEEDED)
    elif operation.handler is None:  # A handler may have something to commit first.
        # Only in its entry, if that is not written yet: a success costs no request of its own, and what the
        # index does not show, the status document does.
        WRITER.change(OperationList.ALL, _entry_of_operation(operation, status=OperationState.SUCCEEDED))


def _note_dead_letter(fact: facts.DeadLetterKept) -> None:
    _note_state(OperationInput.from_json(fact.operation), OperationState.DEAD_LETTERED, fact.error)


def _note_end(fact: facts.OperationEnded) -> None:
    """Note an end that neither an attempt nor a dead letter shows: somebody cancelled the operation."""
    document = fact.document
    if document["status"] == OperationState.CANCELLED and document["key"] is not None:
        WRITER.note(OperationList.FAILED, _entry_of(document, last_error(document)))


def _note_state(operation: OperationInput, status: OperationState, error: str | None = None) -> None:
    """Note an operation that failed, was held up or begins later, or how it ended after that."""
    WRITER.note(
        OperationList.FAILED, _entry_of_operation(operation, status=status, error=(error or "")[:ERROR_CHARS])
    )


def note_document(
    document: Mapping[str, Any], error: str, *, is_known: bool = False, has_failed: bool = False
) -> None:
    """Note an operation by its status document; it may be in the index already. Returns at once.

    Args:
        is_known: Whether the list of all operations is known to have it.
        has_failed: Whether the list of what failed is known to have it, in whatever state.
    """
    entry = _entry_of(document, error)
    if not is_known:
        WRITER.note(OperationList.ALL, entry)
    if has_failed or error or entry.status in _ENDED_OTHERWISE | HELD_UP:
        WRITER.note(OperationList.FAILED, entry)


def is_listed(status: OperationState | None, noted: OperationState | None) -> bool:
    """Whether the list of what failed has an operation, noted there as `noted`, as it must.

    None is what nobody knows, or what the list does not have.
    """
    if status in _ENDED_OTHERWISE:
        return noted is status
    is_over = noted is None or noted in FINISHED
    if status is OperationState.SUCCEEDED:
        return is_over
    return status not in HELD_UP or not is_over


_ENDED_OTHERWISE: Final = frozenset({OperationState.DEAD_LETTERED, OperationState.CANCELLED})


_SAME: Final = ("operation_id", "key", "dependency", "handler", "source", "correlation_id", *TURN_NAMES)
"""What an entry has as the operation has it."""


def _entry_of(document: Mapping[str, Any], error: str) -> OperationEntry:
    return OperationEntry(
        created_at=from_rfc3339(document["created_at"]),
        **{name: document.get(name) for name in _SAME},  # type: ignore[arg-type] # of any type in a document
        status=OperationState(document["status"]),
        error=error[:ERROR_CHARS],
        noted_us=microseconds(clock.now()),
    )


def _entry_of_operation(operation: OperationInput, **more: Any) -> OperationEntry:
    return OperationEntry(
        created_at=operation.created_at,
        **{name: getattr(operation, name) for name in _SAME},
        noted_us=microseconds(clock.now()),
        **more,
    )
