"""HTTP: dead letters one by one; archive, restore, annotate."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Self

from pydantic import model_validator

from durable_retry.base.answers import Answer
from durable_retry.base.errors import (
    ContendedError,
    KeyTakenError,
    NoSuchDeadLetterError,
    NothingToReplayError,
    StillRunningError,
    StorageRefusedError,
    UnreadableDeadLetterError,
)
from durable_retry.base.validation import Strict, refuse, with_example
from durable_retry.dead_letters.actions import annotate, archive, find_letter, restore
from durable_retry.http.answers import ConflictError, NotFoundError
from durable_retry.http.callers import Act, Caller
from durable_retry.http.routes import OK, Declaration, RouteAnswer, Routes
from durable_retry.hub.binding import TaskHub
from durable_retry.rules.dead_letters.document import DeadLetterDocument
from durable_retry.rules.dead_letters.record import FullError, NoteText, WrongStatusError
from durable_retry.rules.facts import TargetType

type Refusal = Callable[[Any], Exception]


def refused_changes(noun: str) -> dict[type[Exception], Refusal]:
    return {
        FullError: lambda error: ConflictError(f"The {noun} takes no more: {error}."),
        StorageRefusedError: lambda error: ConflictError(f"The {noun} takes no more: {error}."),
        ContendedError: lambda _: ConflictError(f"Others are changing the {noun} at this moment; try again."),
    }


REFUSALS: Final[Mapping[type[Exception], Refusal]] = {
    NoSuchDeadLetterError: lambda _: NotFoundError("dead letter of this id"),
    WrongStatusError: lambda error: ConflictError(f"The dead letter is {error.status.value}."),
    StillRunningError: lambda _: ConflictError("The operation of the dead letter is running."),
    KeyTakenError: lambda _: ConflictError("The key of the dead letter belongs to another request by now."),
    NothingToReplayError: lambda _: ConflictError("The event of the dead letter was removed."),
    UnreadableDeadLetterError: lambda error: ConflictError(f"The dead letter cannot be read: {error}."),
    **refused_changes("dead letter"),
}
routes = Routes("dead letters", REFUSALS)


class NoteBody(Strict):
    """The body of a note: its text, called `text` or, as with a replay, `note`."""

    model_config = with_example(text="The supplier was told.")

    text: NoteText | None = None
    note: NoteText | None = None

    @model_validator(mode="after")
    def _one_text(self) -> Self:
        if (self.text is None) == (self.note is None):
            raise refuse("needs a text")
        return self

    @property
    def words(self) -> str:
        """The text, whichever field it came in."""
        return self.text or self.note or ""


class NoBody(Strict):
    """The empty body of a change that takes no arguments."""


@routes.get("dead-letters/{dead_letter_id}")
async def get_dead_letter(dead_letter_id: str) -> DeadLetterDocument:
    """Show a dead letter."""
    return await find_letter(dead_letter_id)


def changed(
    what: str,
    body: type[Strict],
    *,
    body_required: bool = False,
    target: TargetType = TargetType.DEAD_LETTER,
    model: type[Answer] = DeadLetterDocument,
) -> Declaration:
    """Declare a route that changes a dead letter, or another target, and answers with it."""
    noun = target.value.replace("_", " ")
    return {
        "act": Act(f"{what} the {noun}", target),
        "body": body,
        "body_required": body_required,
        "answers": (RouteAnswer(OK, f"The {noun} after the change.", model),),
    }


@routes.post("dead-letters/{dead_letter_id}/archive", **changed("archived", NoBody))
async def archive_dead_letter(
    dead_letter_id: str,
    body: NoBody,  # noqa: ARG001 - checked
    who: Caller,
    hub: TaskHub,
) -> DeadLetterDocument:
    """Put a dead letter away; what waits behind it in its order goes on.

    It is removed for good after the time that the settings give it.
    """
    return await archive(hub, dead_letter_id, who.known_name)


@routes.post("dead-letters/{dead_letter_id}/restore", **changed("restored", NoBody))
async def restore_dead_letter(dead_letter_id: str, body: NoBody) -> DeadLetterDocument:  # noqa: ARG001 - checked
    """Bring an archived dead letter back."""
    return await restore(dead_letter_id)


@routes.post(
    "dead-letters/{dead_letter_id}/notes",
    **changed("noted something on", NoteBody, body_required=True),
)
async def note_dead_letter(dead_letter_id: str, body: NoteBody, who: Caller) -> DeadLetterDocument:
    """Add a note to a dead letter."""
    return await annotate(dead_letter_id, body.words, who.known_name)
