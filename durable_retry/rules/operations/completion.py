"""The end of an operation: the commit of its success, and its report to a batch, saga or call that waits.

Also the end of an operation whose input cannot be read: what its document shows, and what completes the
record of its key.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

from durable_retry.base.json_forms import JsonShape, from_rfc3339
from durable_retry.base.names import FINISHED, Category, DeadLetterReason, OperationState
from durable_retry.base.text import cut_text
from durable_retry.base.trace_context import TraceContext
from durable_retry.base.validation import pointed_at
from durable_retry.rules.operations.keys import KeyCompletion, Life
from durable_retry.rules.operations.operation import run_number
from durable_retry.rules.operations.status import DeadLetterNote, ListedOperation
from durable_retry.rules.retry.history import Conflict

_DAY_SECONDS: Final = 86_400.0


def unreadable_document(
    operation_id: str,
    input_: Any,
    now: datetime,
    *,
    dead_letter_id: str,
    detail: str,
    reason: DeadLetterReason = DeadLetterReason.VALIDATION_FAILED,
) -> dict[str, Any]:
    """Return the status document of an operation whose input cannot be read, by its members that are text."""
    written = written_operation(input_)
    begun = isinstance(input_, Mapping) and "history" in input_
    return ListedOperation(
        operation_id=operation_id,
        key=_text_member(written, "key") or "",
        dependency=_text_member(written, "dependency") or "",
        source=_text_member(written, "source") or "",
        correlation_id=_text_member(written, "correlation_id"),
        status=OperationState.DEAD_LETTERED,
        # The exact count is in the raw input only; 1 says that the dependency may have acted.
        attempt_count=int(begun),
        attempts=(),
        next_attempt_at=None,
        deadline_at=None,
        result=None,
        dead_letter=DeadLetterNote(
            id=dead_letter_id,
            # What it did before is not known.
            category=Category.AMBIGUOUS,
            reason=reason,
            detail=detail,
        ),
        events=(),
        created_at=now,
        updated_at=now,
    ).to_json()


def written_operation(input_: Any) -> Mapping[str, Any]:
    """Return the operation in the input of an orchestration as it is written; empty when there is none."""
    operation = input_.get("operation") if isinstance(input_, Mapping) else None
    return operation if isinstance(operation, Mapping) else {}


def written_run(input_: Any, created_at: datetime) -> int:
    """Return the run number in the input of an orchestration; without one, the number of its start time."""
    run = written_operation(input_).get("run")
    return run if isinstance(run, int) else run_number(created_at)


def unreadable_completion(input_: Any, document: Mapping[str, Any], now: datetime) -> KeyCompletion:
    """Return what completes the key's record of an operation whose input cannot be read."""
    written = written_operation(input_)
    return KeyCompletion(
        run=written_run(input_, from_rfc3339(document["created_at"])),
        fingerprint=_text_member(written, "fingerprint") or "",
        document=document,
        now=now,
        ttl_seconds=_DAY_SECONDS,
    )


def _text_member(written: Mapping[str, Any], name: str) -> str | None:
    value = written.get(name)
    return value if isinstance(value, str) else None


_ERROR_CHARS: Final = 300

MAX_VALUES_CHARS: Final = 16_384
"""Characters of all parts of one result as JSON, at most: the saga that needs them carries them."""

VALUES: Final = "values"
"""Member of the result of an answer that was cut: the parts that a saga wants, by JSON pointer."""

MASKED: Final = "masked"
"""Member of a result: JSON pointers to the places of credentials of the dependency, which are not stored."""

RECOVERED_ATTEMPTS: Final = 5
"""A success after so many attempts was in trouble: people may want to know that this is over."""

SENT_ONCE: Final = "sent_once"
"""Member of a result until it is committed: its handler must not run again, as it sent outside of a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion(JsonShape):
    operation_id: str
    status: OperationState  # succeeded, dead-lettered or cancelled
    category: Category | None = None  # the category of a dead letter, else None
    attempt_count: int = 0  # counted attempts in all
    error: str | None = None  # why it did not succeed, as one line; None when it did
    status_code: int | None = None  # of the answer to the last attempt of a dead letter; None without one
    dead_letter_id: str | None = None  # None where there is none, and while it is not written yet
    # Whether the dependency may have done something although the operation did not succeed: one of its
    # attempts ended without a clear refusal, in this run or an earlier one.
    may_have_acted: bool = False
    # The wanted parts of the result of a success, by JSON pointer; None when there are none.
    values: Mapping[str, Any] | None = None

    @property
    def succeeded(self) -> bool:
        return self.status is OperationState.SUCCEEDED

    @classmethod
    def of(cls, document: Mapping[str, Any], wanted: Iterable[str] = ()) -> Self | None:
        """Return the end that a status document shows, with the wanted parts of its result.

        It is None before the operation has ended.
        """
        status = OperationState(document["status"])
        if status not in FINISHED:
            return None
        dead_letter = document["dead_letter"] or {}
        category = dead_letter.get("category")
        status_code = document["attempts"][-1].get("status_code") if document["attempts"] else None
        may_have_acted = document.get("may_have_acted", False) or category == Category.AMBIGUOUS
        return cls(
            operation_id=document["operation_id"],
            status=status,
            category=None if category is None else Category(category),
            attempt_count=document["attempt_count"],
            error=_error_text(status, dead_letter),
            status_code=status_code if dead_letter else None,
            dead_letter_id=dead_letter.get("id"),
            may_have_acted=may_have_acted and status is not OperationState.SUCCEEDED,
            values=values_at(document.get("result"), wanted) or None,
        )


def values_at(result: Any, pointers: Iterable[str]) -> dict[str, Any]:
    """Return what pointers point at in a result; what is missing, or too large with the others, is left out.

    The member `VALUES` of a result has what was cut away. A part with a mask is left out too: the mask could
    be taken for the value.
    """
    cut_away = result.get(VALUES, {}) if isinstance(result, Mapping) else {}
    values: dict[str, Any] = {}
    for pointer in pointers:
        if is_masked_at(result, pointer):
            continue
        for value in [cut_away[pointer]] if pointer in cut_away else pointed_at(result, pointer):
            if len(json.dumps({**values, pointer: value})) <= MAX_VALUES_CHARS:
                values[pointer] = value
    return values


def is_masked_at(result: Any, pointer: str) -> bool:
    places = result.get(MASKED, ()) if isinstance(result, Mapping) else ()
    return any(f"{pointer}/".startswith(f"{place}/") or place.startswith(f"{pointer}/") for place in places)


def _error_text(status: OperationState, dead_letter: Mapping[str, Any]) -> str | None:
    if status is OperationState.SUCCEEDED:
        return None
    parts = [str(dead_letter[name]) for name in ("reason", "detail") if dead_letter.get(name)]
    return cut_text(": ".join(parts) or status.value, _ERROR_CHARS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Success(JsonShape):
    """The input of the activity `commit`."""

    operation_id: str
    life: Life  # of its run
    result: Any = None
    writes: tuple[Any, ...]  # of the handler, see `features.handlers.writes`
    events: tuple[Any, ...]  # of the handler
    # The parts of features that commit something; None for none.
    parts: Mapping[str, Mapping[str, Any]] | None = None
    # Whether it replays a dead letter, or needed `RECOVERED_ATTEMPTS`; None for not.
    is_recovered: bool | None = None
    correlation_id: str | None = None
    trace: TraceContext | None = None
    limit_key: str | None = None  # which its events have, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(JsonShape):
    """The answer of the activity `commit`."""

    # The run under whose name it was committed: another start of the same life may have come first.
    run_id: str
    rejected: str | None = None  # why the writes can never be made; None when they are
    conflict: Conflict | None = None  # a row that is not as a write expects it; None where all are
