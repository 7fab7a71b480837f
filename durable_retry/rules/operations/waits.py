"""What holds an operation up: its pause, and the member `waits` of a status document.

An operation stores what held its attempts up. The pause after a failed attempt is in that attempt, and is
joined to the others, with the error behind it, when the document is shown.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Self

from pydantic import Field

from durable_retry.base.json_forms import from_rfc3339, instant_in
from durable_retry.base.names import RESUME_EVENT
from durable_retry.base.text import cut_text, failing_text, outcome_text, paused_text, time_text
from durable_retry.base.validation import (
    InvalidInputError,
    PositiveSeconds,
    Strict,
    validated,
    with_example,
)
from durable_retry.rules.retry.constraints import REASON_ERROR_CHARS
from durable_retry.rules.retry.history import PastAction, PastAttempt, PastWait, WaitKind, end_of, kind_after


class PauseOptions(Strict):
    """How one operation or many are paused."""

    reason: Annotated[
        Annotated[str, Field(min_length=1, max_length=200)] | None,
        Field(description="Why, for whoever looks at it."),
    ] = None
    for_seconds: Annotated[
        PositiveSeconds | None,
        Field(description="How long it lasts; null means until somebody resumes the operation."),
    ] = None
    stops_deadline: Annotated[
        bool,
        Field(description="Whether the operation gets the time of the pause on top of its deadline."),
    ] = False


class Try(Strict):
    """The body of an attempt past the circuit, which ends the wait for it."""

    model_config = with_example(reason="The supplier says that it works again.")

    reason: Annotated[str, Field(min_length=1, max_length=200, description="Why, for whoever looks at it.")]


class Pause(PauseOptions):
    """The body of a pause."""

    model_config = with_example(reason="The supplier changes its API.", for_seconds=600.0)

    @classmethod
    def of(cls, request: Any) -> Self:
        """Read the data of an external event; one in any other form pauses without an end."""
        members = request if isinstance(request, dict) else {}
        try:
            return validated(cls, {name: members[name] for name in cls.model_fields if name in members})
        except InvalidInputError:
            return cls()

    @staticmethod
    def is_over(request: Any, actions: Iterable[PastAction]) -> bool:
        """Whether this asks for a pause that has ended: a hub may deliver an external event twice."""
        ends = [action.at for action in actions if action.action == RESUME_EVENT]
        asked_at = instant_in(request, "asked_at")
        return bool(ends) and asked_at is not None and asked_at <= ends[-1]

    @staticmethod
    def is_ended_by(request: Any, began_at: datetime) -> bool:
        """Whether an external event resumes what was paused at an instant."""
        return instant_in(request, "paused_at") == began_at


def waits_of(document: Mapping[str, Any]) -> tuple[PastWait, ...]:
    """Return every wait of a stored status document, oldest first; the first reason of each says why."""
    held = (PastWait.from_json(wait) for wait in document.get("waits", ()))
    return tuple(sorted((*held, *_pauses_of(document)), key=lambda wait: wait.began_at))


def _pauses_of(document: Mapping[str, Any]) -> Iterator[PastWait]:
    before, since = None, ""
    for written in document["attempts"]:
        answer = (written["status_code"], written["category"])
        if answer != before:
            before, since = answer, written["started_at"]
        if written["next_delay_seconds"] is not None:
            yield _pause_after(PastAttempt.from_json(written), document, from_rfc3339(since))


def _pause_after(attempt: PastAttempt, document: Mapping[str, Any], since: datetime) -> PastWait:
    began_at, kind = end_of(attempt), kind_after(attempt.category)
    until = began_at + timedelta(seconds=attempt.next_delay_seconds or 0)
    error = None if attempt.error is None else cut_text(attempt.error, REASON_ERROR_CHARS)
    fails = attempt.dependency or document["dependency"]
    if attempt.status_code is None:
        fails = document.get("handler") or fails
    failing = failing_text(outcome_text(attempt.status_code, error))
    why = f"{fails} {failing}, since {time_text(since)}"
    if kind is WaitKind.THROTTLE:
        why = paused_text(str(attempt.status_code or fails), until)
    return PastWait(
        before_attempt=attempt.number + 1,
        kind=kind,
        began_at=began_at,
        until=until,
        delay_reasons=(why, *attempt.delay_reasons),
    )
