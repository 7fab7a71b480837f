"""Notes for the index of operations: collected in memory, written together at most once a second.

No operation waits for the index, or fails with it. The first entry after a pause is written within 50 ms. An
entry that comes within a second of a write waits for the next one; meanwhile the process has a row under
`writer` of the index, which is renewed while it is busy and deleted afterwards. When a process ends before it
has written, its row stays, and upkeep adds what it lost from the task hub (`index.reconcile`).
"""

import asyncio
import atexit
import logging
import uuid
from collections import deque
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from durable_retry.base.json_forms import from_rfc3339, microseconds
from durable_retry.base.names import FINISHED, PAUSE_EVENT, TURN_NAMES, OperationState, Priority
from durable_retry.rules import facts
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.retry.history import WaitKind, kind_after
from durable_retry.runtime import clock
from durable_retry.runtime.concurrency import LoopOwned
from durable_retry.telemetry.facts import subscribe
from durable_retry_console.index.store import (
    OperationEntry,
    OperationList,
    close_gap,
    write_entries,
    write_entries_at_end,
    write_since,
)
from durable_retry_console.states import HELD_UP, last_error

ERROR_CHARS: Final = 300
"""Characters of an error that the index has."""

_SOON_SECONDS: Final = 0.05
_PAUSE_SECONDS: Final = 1.0
_MOST_PAUSE_SECONDS: Final = 30.0
"""Pause between writes while storage is away. A list that is read meanwhile has them written at once."""
_RENEWED_SECONDS: Final = 30.0
_MOST_HELD: Final = 20_000
"""Entries that wait for storage. What is beyond that is dropped, and added by upkeep."""

_DROPPED_WITHIN: Final = timedelta(seconds=5)
"""Far longer than an operation takes from its acceptance to its note."""

_log = logging.getLogger(__name__)

# A list, and where it has an operation.
type _Place = tuple[OperationList, tuple[datetime, str]]


@dataclass(slots=True)
class _Writer:
    """What one event loop has collected; its methods run there."""

    name: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    # Entries that are not written yet, the first noted first: one for each place in a list.
    held: dict[_Place, OperationEntry] = field(default_factory=dict)
    written: int = 0  # writes so far
    timer: asyncio.TimerHandle | None = None  # the timer of the next write; None while none is planned
    last_write: float = float("-inf")  # when it began, in the loop's seconds
    pause_seconds: float = _PAUSE_SECONDS  # from its beginning to that of the next one, at least
    # Since when storage has not taken what is written; None while it takes it.
    failing_since: datetime | None = None
    # When its row under `writer` was last written, in the loop's seconds; None while it has none.
    renewed: float | None = None
    # Since when entries were dropped, as too many waited for storage; None while none were.
    dropped_since: datetime | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # one write at a time
    tasks: set[asyncio.Task[None]] = field(default_factory=set)  # under way

    def hold(self, kind: OperationList, entry: OperationEntry) -> None:
        """Hold an entry, in place of one that the index would pass over for it."""
        known = self.held.get((kind, entry.position))
        if known is None or known.rank <= entry.rank:
            self.held[kind, entry.position] = entry

    def note(self, kind: OperationList, entry: OperationEntry) -> None:
        """Hold an entry, and plan its write."""
        self.hold(kind, entry)
        now = asyncio.get_running_loop().time()
        if self.timer is not None and self.timer.when() <= now + self.pause_seconds:
            return
        wait = max(_SOON_SECONDS, self.last_write + self.pause_seconds - now)
        self._plan(wait)
        if wait > _SOON_SECONDS and self.renewed is None:
            self._run(self._announce())

    def _plan(self, seconds: float) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    def _begin(self) -> None:
        self.timer = None
        if self.lock.locked():  # A write of slow storage: those behind it would only be more and more.
            self._plan(self.pause_seconds)
        else:
            self._run(self.write())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def write(self) -> None:
        """Write what is held; never raises."""
        async with self.lock:
            held, self.held = self.held, {}
            if held:
                self.last_write = asyncio.get_running_loop().time()
            try:
                self.written += 1
                await write_entries(f"{self.name}-{self.written}", _listed(held))
                await self._renew(is_idle=not held)
            except Exception as error:  # noqa: BLE001 - no operation waits for the index, or fails with it
                self._hold_again(held)
                self.pause_seconds = min(2 * self.pause_seconds, _MOST_PAUSE_SECONDS)
                self.failing_since = self.failing_since or clock.now()
                self._warn(error)
            else:
                self.pause_seconds, self.failing_since = _PAUSE_SECONDS, None
        if self.timer is None and (self.held or self.renewed is not None):
            self._plan(self.pause_seconds if self.held else _RENEWED_SECONDS)

    def _hold_again(self, held: dict[_Place, OperationEntry]) -> None:
        later, self.held = self.held, held
        for kind, entry in _listed(later):
            self.hold(kind, entry)
        dropped = list(self.held)[:-_MOST_HELD]
        for place in dropped:
            del self.held[place]
        if dropped and self.dropped_since is None:
            self.dropped_since = clock.now() - _DROPPED_WITHIN

    def _warn(self, error: Exception) -> None:
        words = "the index of operations cannot be written: %s; entries that wait: %d"
        _log.warning(words, type(error).__name__, len(self.held))

    async def _announce(self) -> None:
        async with self.lock:
            try:
                await self._write_row()
            except Exception as error:  # noqa: BLE001 - as above
                self._warn(error)

    async def _renew(self, *, is_idle: bool) -> None:
        """Renew the writer's row while it is busy; delete it when nothing came for a while."""
        if self.dropped_since is not None:
            await write_since(f"{self.name}-{self.written}", self.dropped_since)
            self.dropped_since = None
        if self.renewed is None:
            return
        if is_idle:
            self.renewed = None
            await close_gap(self.name)
        elif asyncio.get_running_loop().time() - self.renewed >= _RENEWED_SECONDS:
            await self._write_row()

    async def _write_row(self) -> None:
        await write_since(self.name, clock.now() - _DROPPED_WITHIN)
        self.renewed = asyncio.get_running_loop().time()


def _listed(held: Mapping[_Place, OperationEntry]) -> list[tuple[OperationList, OperationEntry]]:
    return [(kind, entry) for (kind, _), entry in held.items()]


_writers: Final = LoopOwned(_Writer)

_without_loop: deque[tuple[OperationList, OperationEntry]] = deque(maxlen=_MOST_HELD)
"""Notes of threads from before any event loop of this process noted anything."""


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
        _note_entry(OperationList.ALL, _entry_of_operation(fact.operation))
        if fact.operation.start_at is not None:
            _note_state(fact.operation, OperationState.SCHEDULED)


def _note_unanswered(fact: facts.StartUnanswered) -> None:
    """Note an operation that may run; the lists leave out what the task hub does not have."""
    _note_entry(OperationList.ALL, _entry_of_operation(fact.operation, was_answered=False))


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
        _note_entry(OperationList.FAILED, replace(entry, status=OperationState.PAUSED))
        return
    changed = replace(entry, priority=Priority(fact.priority))
    _note_entry(OperationList.ALL, replace(changed, status=None))
    _note_entry(OperationList.FAILED, changed)


def _note_attempt(fact: facts.AttemptEnded) -> None:
    operation, outcome = fact.operation, fact.outcome
    if outcome.category is not None:
        _note_state(operation, kind_after(outcome.category).state, outcome.error)
    elif outcome.number > 1 or fact.was_held or not operation.begins_at_once:
        _note_state(operation, OperationState.SUCCEEDED)
    elif operation.handler is None:  # A handler may have something to commit first.
        _note_success(operation)


def _note_success(operation: OperationInput) -> None:
    """Note that an operation succeeded at once, in its entry, if that is not written yet; else nothing.

    So a success costs no request of its own; what the index does not show, the status document does.
    """
    writer, position = _writers.known(), (operation.created_at, operation.operation_id)
    if writer is not None and (OperationList.ALL, position) in writer.held:
        writer.hold(OperationList.ALL, _entry_of_operation(operation, status=OperationState.SUCCEEDED))


def _note_dead_letter(fact: facts.DeadLetterKept) -> None:
    _note_state(OperationInput.from_json(fact.operation), OperationState.DEAD_LETTERED, fact.error)


def _note_end(fact: facts.OperationEnded) -> None:
    """Note an end that neither an attempt nor a dead letter shows: somebody cancelled the operation."""
    document = fact.document
    if document["status"] == OperationState.CANCELLED and document["key"] is not None:
        _note_entry(OperationList.FAILED, _entry_of(document, last_error(document)))


def _note_state(operation: OperationInput, status: OperationState, error: str | None = None) -> None:
    """Note an operation that failed, was held up or begins later, or how it ended after that."""
    _note_entry(
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
        _note_entry(OperationList.ALL, entry)
    if has_failed or error or entry.status in _ENDED_OTHERWISE | HELD_UP:
        _note_entry(OperationList.FAILED, entry)


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


def _note_entry(kind: OperationList, entry: OperationEntry) -> None:
    try:
        writer = _writers.get()
    except RuntimeError:
        # Entities run in threads without a loop of their own.
        _note_on_some_loop(kind, entry)
        return
    while _without_loop:
        writer.hold(*_without_loop.popleft())
    writer.note(kind, entry)


def _note_on_some_loop(kind: OperationList, entry: OperationEntry) -> None:
    """Hand a note to a loop that writes notes; the first loop that does takes it where there is none yet."""
    loop = next((candidate for candidate in list(_writers.values) if candidate.is_running()), None)
    if loop is None:
        _without_loop.append((kind, entry))
    else:
        loop.call_soon_threadsafe(_note_entry, kind, entry)


async def write_noted() -> None:
    """Write what this event loop has noted, so that a list that is read next shows it; never raises."""
    writer = _writers.known()
    if writer is not None and (writer.held or writer.lock.locked()):
        await writer.write()


def unwritten() -> tuple[int, datetime] | None:
    """Return how many entries wait for storage that fails, and since when; None while it takes them.

    They are lost if the process is killed now.
    """
    failing = [
        (each.failing_since, len(each.held)) for each in _open_writers() if each.failing_since is not None
    ]
    if not failing:
        return None
    return sum(count for _, count in failing), min(since for since, _ in failing)


def _open_writers() -> list[_Writer]:
    return [writer for loop, writer in list(_writers.values.items()) if not loop.is_closed()]


def write_at_end() -> None:
    """Write what is still held when the process ends; what fails then is left to upkeep."""
    homeless = _Writer()
    while _without_loop:
        homeless.hold(*_without_loop.popleft())
    for writer in (homeless, *_open_writers()):
        held, writer.held = writer.held, {}
        try:
            if held:
                write_entries_at_end(f"{writer.name}-end", _listed(held))
        except Exception as error:  # noqa: BLE001 - nobody is left to handle it
            _log.warning("the index of operations was not written: %s", type(error).__name__)


atexit.register(write_at_end)
