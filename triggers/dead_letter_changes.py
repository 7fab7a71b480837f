"""HTTP: what a person does with one dead letter: replay, archive, restore, note."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final, Self

import azure.functions as func
from pydantic import model_validator

from engine.dead_letter import DeadLetterRecord, FullError, WrongStatusError, archived, noted, restored
from engine.dead_letter_edit import NoteText, ReplayBody
from engine.validation import Strict, refuse, validated
from stores import clock
from stores.dead_letters import (
    ContendedError,
    NoSuchDeadLetterError,
    change_dead_letter,
    move_dead_letter,
)
from stores.outbox import NoSuchEventError
from stores.replay_start import KeyTakenError
from triggers.bodies import read_body
from triggers.http_blueprint import HttpBlueprint
from triggers.problems import WRONG_STATE, json_answer, not_found, problem
from triggers.replaying import StillRunningError, replay_dead_letter

blueprint = HttpBlueprint()

_CONFLICTS: Final = (
    WrongStatusError,
    FullError,
    StillRunningError,
    KeyTakenError,
    NoSuchEventError,
    ContendedError,
)


class NoteBody(Strict):
    """The body of a note: its text, called `text` or, as with a replay, `note`."""

    text: NoteText | None = None
    note: NoteText | None = None

    @model_validator(mode="after")
    def _one_text(self) -> Self:
        if (self.text is None) == (self.note is None):
            raise refuse("needs a text")
        return self

    @property
    def words(self) -> str:
        """The text, however it is called."""
        return self.text or self.note or ""


class NoBody(Strict):
    """The body of what takes nothing."""


@blueprint.route(route="dead-letters/{dead_letter_id}/replay", methods=["POST"])
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def replay_one_dead_letter(req: func.HttpRequest, hub: str) -> func.HttpResponse:
    """Start the operation of a dead letter again, as it was or edited."""

    async def replay() -> func.HttpResponse:
        edits = validated(ReplayBody, _optional_body(req))
        operation_id = await replay_dead_letter(hub, _id(req), edits, clock.now())
        return json_answer({"operation_id": operation_id}, HTTPStatus.ACCEPTED)

    return await _answered(replay)


@blueprint.route(route="dead-letters/{dead_letter_id}/archive", methods=["POST"])
async def archive_dead_letter(req: func.HttpRequest) -> func.HttpResponse:
    """Put a dead letter away; it goes for good after the time that the settings give it."""

    async def archive() -> func.HttpResponse:
        validated(NoBody, _optional_body(req))
        now = clock.now()
        return _document(await move_dead_letter(_id(req), lambda record: archived(record, now)))

    return await _answered(archive)


@blueprint.route(route="dead-letters/{dead_letter_id}/restore", methods=["POST"])
async def restore_dead_letter(req: func.HttpRequest) -> func.HttpResponse:
    """Bring an archived dead letter back."""

    async def restore() -> func.HttpResponse:
        validated(NoBody, _optional_body(req))
        return _document(await move_dead_letter(_id(req), restored))

    return await _answered(restore)


@blueprint.route(route="dead-letters/{dead_letter_id}/notes", methods=["POST"])
async def note_dead_letter(req: func.HttpRequest) -> func.HttpResponse:
    """Add a note to a dead letter."""

    async def note() -> func.HttpResponse:
        text, now = validated(NoteBody, read_body(req)).words, clock.now()
        return _document(await change_dead_letter(_id(req), lambda record: noted(record, text, now)))

    return await _answered(note)


async def _answered(act: Callable[[], Awaitable[func.HttpResponse]]) -> func.HttpResponse:
    """Do it, or say in HTTP's terms why it cannot be done."""
    try:
        return await act()
    except NoSuchDeadLetterError:
        return not_found("dead letter of this id")
    except _CONFLICTS as error:
        return problem(HTTPStatus.CONFLICT, _conflict(error), type_=WRONG_STATE)


def _conflict(error: Exception) -> str:
    match error:
        case WrongStatusError():
            return f"The dead letter is {error.status.value}."
        case FullError():
            return f"The dead letter takes no more: {error}."
        case StillRunningError():
            return "The operation of the dead letter is running."
        case KeyTakenError():
            return "The key of the dead letter stands for another request by now."
        case NoSuchEventError():
            return "The event of the dead letter was cleaned away."
        case _:
            return "Others are changing the dead letter at this moment; try again."


def _optional_body(request: func.HttpRequest) -> Any:
    return read_body(request) if request.get_body().strip() else {}


def _id(request: func.HttpRequest) -> str:
    return str(request.route_params["dead_letter_id"])


def _document(record: DeadLetterRecord) -> func.HttpResponse:
    return json_answer(record.shown())
