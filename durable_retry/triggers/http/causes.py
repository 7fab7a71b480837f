"""HTTP: root causes of dead letters: acknowledge, resolve and annotate them."""

from typing import Annotated

import azure.functions as func
from pydantic import Field

from durable_retry.engine.base.errors import ContendedError, NoSuchCauseError, StorageRefusedError
from durable_retry.engine.base.validation import Strict, with_example
from durable_retry.engine.dead_letters.document import CauseDocument, DeadLetterGroup
from durable_retry.engine.dead_letters.record import FullError
from durable_retry.engine.dead_letters.replay import NoteText
from durable_retry.engine.facts import TargetType
from durable_retry.http.answers import ConflictError, NotFoundError, json_answer
from durable_retry.http.callers import Act, Caller
from durable_retry.http.routes import OK, Declaration, RouteAnswer, Routes, shown
from durable_retry.services.dead_letters import causes
from durable_retry.triggers.http.dead_letters import NoteBody

routes = Routes(
    "dead letters",
    {
        NoSuchCauseError: lambda _: NotFoundError("cause of this name"),
        FullError: lambda error: ConflictError(f"The cause takes no more: {error}."),
        StorageRefusedError: lambda error: ConflictError(f"The cause takes no more: {error}."),
        ContendedError: lambda _: ConflictError("Others are changing the cause at this moment; try again."),
    },
)


class CauseBody(Strict):
    """The body of a change of a cause; it may be left out."""

    model_config = with_example(note="The vendor changed the field's name.")

    note: Annotated[NoteText | None, Field(description="Why, for whoever looks later.")] = None


def _changed(what: str, body: type[Strict], *, body_required: bool = True) -> Declaration:
    return {
        "act": Act(what, TargetType.CAUSE),
        "body": body,
        "body_required": body_required,
        "answers": (RouteAnswer(OK, "The cause after the change.", DeadLetterGroup),),
    }


@routes.get("dead-letters/groups/{group}", answers=shown(CauseDocument))
async def get_dead_letter_group(group: str) -> func.HttpResponse:
    """Show a cause, also one without open dead letters, with its latest dead letter."""
    return json_answer(await causes.find_cause(group))


@routes.post(
    "dead-letters/groups/{group}/acknowledge",
    **_changed("acknowledged the cause", CauseBody, body_required=False),
)
async def acknowledge_cause(group: str, body: CauseBody, who: Caller) -> func.HttpResponse:
    """Say that somebody looks into a cause."""
    return json_answer(await causes.acknowledge(group, who.known_name, body.note))


@routes.post(
    "dead-letters/groups/{group}/resolve", **_changed("resolved the cause", CauseBody, body_required=False)
)
async def resolve_cause(group: str, body: CauseBody, who: Caller) -> func.HttpResponse:
    """Say that a cause is mended; its open dead letters stay open.

    A dead letter that is made later shows that it came back.
    """
    return json_answer(await causes.resolve(group, who.known_name, body.note))


@routes.post("dead-letters/groups/{group}/notes", **_changed("noted something on the cause", NoteBody))
async def note_cause(group: str, body: NoteBody, who: Caller) -> func.HttpResponse:
    """Add a note to a cause."""
    return json_answer(await causes.annotate_cause(group, body.words, who.known_name))
