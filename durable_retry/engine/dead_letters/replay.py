"""Replaying dead letters: which ones a query means, what a person may edit, and many at a rate.

A person may edit the request, the input or the message; never key or dependency.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from math import ceil
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field

from durable_retry.engine.base.json_forms import (
    JsonRecord,
    from_rfc3339,
    optional_from_rfc3339,
    optional_to_rfc3339,
)
from durable_retry.engine.base.names import Category, DeadLetterReason
from durable_retry.engine.base.text import MASK, cut_text
from durable_retry.engine.base.validation import (
    InvalidInputError,
    Label,
    Problem,
    Strict,
    checked,
    pointer_of,
)
from durable_retry.engine.dead_letters.record import (
    MAX_MESSAGE_CHARS,
    DeadLetterRecord,
    Status,
)
from durable_retry.engine.operations.content import missing_credentials
from durable_retry.engine.operations.request import OperationRequest, canonical_json, parse_operation


@dataclass(frozen=True, slots=True, kw_only=True)
class Facets:
    """The values by which a dead letter can be found, besides status and time.

    Attributes:
        reason: The contract's name.
        category: Of the last failure.
        dependency: "" for a message that names none.
        group: Of its root cause.
    """

    reason: str
    category: str
    dependency: str
    group: str

    @classmethod
    def of(cls, record: DeadLetterRecord) -> Self:
        """Return the facets of a dead letter."""
        return cls(
            reason=record.reason.value,
            category=record.category.value,
            dependency=record.dependency or "",
            group=record.group,
        )

    @property
    def lists(self) -> tuple[str, ...]:
        """The names of all lists that contain the dead letter."""
        return (
            "all",
            f"reason={self.reason}",
            f"category={self.category}",
            f"dependency={self.dependency}",
            f"group={self.group}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter(JsonRecord):
    """Conditions on dead letters; None means any.

    Attributes:
        status: See `Status`.
        reason: The contract's name.
        category: Of the last failure.
        dependency: Its name.
        group: Of the root cause.
        created_after: Created at this instant or later.
        created_before: Created before this instant.
    """

    status: Status | None = None
    reason: str | None = None
    category: str | None = None
    dependency: str | None = None
    group: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None

    @property
    def key(self) -> str:
        """The name of the shortest list that contains every match.

        A group lies within one dependency, reason and category. Of the others the list of a dependency is
        usually the shortest.
        """
        for name, value in (
            ("group", self.group),
            ("dependency", self.dependency),
            ("reason", self.reason),
            ("category", self.category),
        ):
            if value is not None:
                return f"{name}={value}"
        return "all"

    @property
    def is_exact(self) -> bool:
        """Whether every entry of the list of `key` matches."""
        given = [self.group, self.dependency, self.reason, self.category]
        return len(given) - given.count(None) <= 1

    def matches(self, facets: Facets) -> bool:
        """Return whether a dead letter with these facets matches."""
        return all(
            wanted in (None, found)
            for wanted, found in (
                (self.reason, facets.reason),
                (self.category, facets.category),
                (self.dependency, facets.dependency),
                (self.group, facets.group),
            )
        )

    def until(self, instant: datetime) -> Self:
        """Return the filter limited to dead letters created before an instant."""
        ends = [end for end in (self.created_before, instant) if end is not None]
        return replace(self, created_before=min(ends))


type NoteText = Annotated[str, Field(min_length=1, max_length=4_000)]

_BODIES: Final = frozenset({"json", "body"})
_MAX_CHANGES: Final = 100


class ReplayBody(Strict):
    """The body of `POST /api/dead-letters/{id}/replay`; all of it may be left out.

    Attributes:
        request: Keys of the request to put in place of what they were; the others stay.
        input: In place of a handler's input.
        message: In place of a message's text.
        note: Why, for whoever looks later.
        downstream_key: The key that the dependency deduplicates on: `same`, or `new` as for another request.
            Left out, it is new when the call or the input was edited; other headers alone keep it.
    """

    request: dict[str, Any] | None = None
    input: Any = None
    message: Annotated[str, Field(max_length=MAX_MESSAGE_CHARS)] | None = None
    note: NoteText | None = None
    downstream_key: Literal["same", "new"] | None = None

    @property
    def edits(self) -> frozenset[str]:
        """The names of the fields that are edited."""
        return frozenset(self.model_fields_set) - {"note", "downstream_key"}


def edited_operation(record: DeadLetterRecord, edits: ReplayBody) -> OperationRequest:
    """Return the request of the operation that replays another one, validated like a new one.

    Raises:
        InvalidInputError: With every mistake, including fields that cannot be edited.
    """
    operation = record.operation or {}
    is_handler = operation["handler"] is not None
    refused = edits.edits - ({"input"} if is_handler else {"request"})
    if refused:
        detail = "cannot be edited: this dead letter has " + ("an input" if is_handler else "a request")
        raise InvalidInputError(Problem(f"/{name}", detail) for name in sorted(refused))
    return _parsed(
        {"handler": operation["handler"], "input": operation["input"]}
        if is_handler
        else {"dependency": operation["dependency"], "request": operation["request"]},
        edits,
        record,
    )


def _parsed(document: dict[str, Any], edits: ReplayBody, record: DeadLetterRecord) -> OperationRequest:
    operation = record.operation or {}
    if "input" in edits.edits:
        document["input"] = edits.input
    if edits.request is not None:
        document["request"] = _overlaid(document["request"], edits.request)
    # Credentials were masked when the dead letter was stored, so the person must supply them again.
    missing = list(missing_credentials(document.get("request")))
    if missing:
        raise InvalidInputError(missing)
    # Older versions accepted spaces at the ends of a correlation id, which validation refuses today.
    correlation_id = (operation["correlation_id"] or "").strip() or None
    more = {"correlation_id": correlation_id, "on_success": list(operation["on_success"])}
    return parse_operation(document | more)


def _overlaid(request: Mapping[str, Any], edited: Mapping[str, Any]) -> dict[str, Any]:
    """Apply edited keys to a request; a body of either form replaces a body of the other."""
    kept = {
        name: value for name, value in request.items() if name not in _BODIES or not _BODIES & edited.keys()
    }
    return {**kept, **edited}


def needs_new_key(edits: ReplayBody, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether the dependency must get a new key: it may refuse another request under the old one.

    Args:
        edits: What a person asked for.
        before: `request` and `input` as they were.
        after: The same, edited.
    """
    if edits.downstream_key is not None:
        return edits.downstream_key == "new"
    return _fingerprinted(before) != _fingerprinted(after)


def _fingerprinted(content: Mapping[str, Any]) -> str:
    """Return what dependencies compare under one key; credentials in headers may differ."""
    request = {name: value for name, value in (content.get("request") or {}).items() if name != "headers"}
    return canonical_json([request, content.get("input")])


def changes_between(before: Any, after: Any) -> tuple[dict[str, Any], ...]:
    """List the differences between two JSON documents, at most the first hundred.

    Returns:
        `{"pointer", "before", "after"}` of each; a side on which the value is missing lacks the key.
    """
    found: list[dict[str, Any]] = []
    for change in _differences((), before, after):
        if len(found) == _MAX_CHANGES:
            break
        found.append(change)
    return tuple(found)


def _differences(path: tuple[str | int, ...], before: Any, after: Any) -> Iterator[dict[str, Any]]:
    # Documents are at most `engine.base.validation.MAX_DEPTH` deep, and so is this recursion.
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted(before.keys() | after.keys()):
            place = (*path, str(name))
            if name not in after:
                yield {"pointer": pointer_of(*place), "before": before[name]}
            elif name not in before:
                yield {"pointer": pointer_of(*place), "after": after[name]}
            else:
                yield from _differences(place, before[name], after[name])
    elif before != after or isinstance(before, bool) is not isinstance(after, bool):
        yield {"pointer": pointer_of(*path), "before": before, "after": after}


def is_masked(operation: Mapping[str, Any]) -> bool:
    """Return whether credentials were masked when an operation was stored, so that it cannot start again."""
    request = operation["request"]
    return request is not None and MASK in request.get("headers", {}).values()


MAX_BATCH: Final = 25
"""Dead letters that one activity replays: far below `functionTimeout`, and the rate stays smooth."""

BATCHES_PER_PAGE: Final = 20
"""Batches per read of the list; then the orchestration continues as new, which keeps its history short."""

KEPT_FAILURES: Final = 20
_DETAIL_CHARS: Final = 200


def _one_of(words: type[StrEnum]) -> AfterValidator:
    names = [word.value for word in words]
    return checked(lambda text: None if text in names else f"must be one of {', '.join(names)}")


def _instant_problem(text: str) -> str | None:
    try:
        from_rfc3339(text)
    except ValueError:
        return "must be an RFC 3339 instant such as 2026-11-21T09:30:00Z"
    return None


type Instant = Annotated[str, checked(_instant_problem)]


class FilterBody(Strict):
    """Which dead letters, as in the query of the list; only open ones can be replayed."""

    status: Literal["open"] = "open"
    reason: Annotated[str, _one_of(DeadLetterReason)] | None = None
    category: Annotated[str, _one_of(Category)] | None = None
    dependency: Label | None = None
    group: Label | None = None
    created_after: Instant | None = None
    created_before: Instant | None = None

    def wanted(self, now: datetime) -> DeadLetterFilter:
        """Return the filter, limited to what exists now: a bulk replay never meets its own failures."""
        return DeadLetterFilter(
            status=Status.OPEN,
            reason=self.reason,
            category=self.category,
            dependency=self.dependency,
            group=self.group,
            created_after=optional_from_rfc3339(self.created_after),
            created_before=optional_from_rfc3339(self.created_before),
        ).until(now)


class BulkReplayBody(Strict):
    """The body of `POST /api/dead-letters/replays`.

    Attributes:
        filter: Which dead letters; required, `{}` means all.
        rate_per_second: The most per second, on average.
        dry_run: Whether to count only.
        note: Stored with each replay.
    """

    filter: FilterBody
    rate_per_second: Annotated[float, Field(ge=0.001, le=100)] = 5.0
    dry_run: bool = False
    note: NoteText | None = None


@dataclass(frozen=True, slots=True)
class Pace:
    """How a rate is kept: the size of a batch, and the interval between the starts of two batches."""

    batch: int
    interval: timedelta

    @classmethod
    def of(cls, rate_per_second: float) -> Self:
        """Return the pace for a rate: about one batch a second, of at most `MAX_BATCH`."""
        batch = max(1, min(MAX_BATCH, int(rate_per_second)))
        # Rounded up: a microsecond less per batch would exceed the rate.
        return cls(batch, timedelta(microseconds=ceil(batch * 1_000_000 / rate_per_second)))

    @property
    def page(self) -> int:
        """How many dead letters to read at once."""
        return self.batch * BATCHES_PER_PAGE


class ReplayState(StrEnum):
    """The state of a bulk replay."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING_CIRCUIT = "waiting_circuit"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


FINISHED_REPLAY: Final = frozenset({ReplayState.COMPLETED, ReplayState.CANCELLED, ReplayState.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayProgress(JsonRecord):
    """The progress of a bulk replay.

    Attributes:
        replayed: Dead letters whose replay started.
        skipped: Dead letters that were no longer open when their turn came.
        failed: Dead letters that could not be started, and stay open.
        failures: `{"id", "detail"}` of the latest of these.
        cursor: Where to continue reading the list; None at the beginning.
    """

    replayed: int = 0
    skipped: int = 0
    failed: int = 0
    failures: tuple[Mapping[str, Any], ...] = ()
    cursor: str | None = None

    def plus(self, step: Mapping[str, Any]) -> Self:
        """Add the result of one batch: `replayed`, `skipped` and `failures`."""
        failures = [
            {"id": one["id"], "detail": cut_text(one["detail"], _DETAIL_CHARS)} for one in step["failures"]
        ]
        return replace(
            self,
            replayed=self.replayed + step["replayed"],
            skipped=self.skipped + step["skipped"],
            failed=self.failed + len(failures),
            failures=(*self.failures, *failures)[-KEPT_FAILURES:],
        )


def progress_document(
    given: Mapping[str, Any],
    state: ReplayState,
    progress: ReplayProgress,
    *,
    waiting_until: datetime | None = None,
) -> dict[str, Any]:
    """Return the document of `GET /api/dead-letters/replays/{id}`.

    Args:
        given: The input of the bulk replay.
        state: Its state.
        progress: Its progress.
        waiting_until: When it next checks the circuit that it waits for; None when it does not wait.
    """
    done = progress.replayed + progress.skipped + progress.failed
    shown = progress.to_json()
    del shown["cursor"]
    return {
        "replay_id": given["replay_id"],
        "status": state.value,
        "filter": given["filter"],
        "rate_per_second": given["rate_per_second"],
        "note": given["note"],
        "matched": given["matched"],
        **shown,
        "remaining": max(0, given["matched"] - done),
        "waiting_until": optional_to_rfc3339(waiting_until),
        "created_at": given["created_at"],
    }
