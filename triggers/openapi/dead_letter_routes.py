"""Routes of dead letters."""

from typing import Any, Final

from engine.bulk_replay import BulkReplayBody
from engine.dead_letter import Status
from engine.dead_letter_edit import ReplayBody
from engine.vocabulary import Category, DeadLetterReason
from triggers.dead_letter_changes import NoBody, NoteBody
from triggers.openapi import dead_letter_answers as letters
from triggers.openapi.common_parts import (
    ACCEPTED,
    AWAY,
    CONFLICT,
    CREATED_AFTER,
    INVALID,
    MISSING,
    OK,
    PAGING,
    TOO_LARGE,
    instant,
    one_of,
    page,
    shown,
    text,
)
from triggers.openapi.parts import Answer, Route

_LETTER_CHANGED: Final = (INVALID, MISSING, CONFLICT, TOO_LARGE, AWAY)


def _letter(
    function: str, act: str, summary: str, body: Any, answer: Answer, *, body_required: bool = False
) -> Route:
    return Route(
        function=function,
        method="POST",
        path=f"/dead-letters/{{dead_letter_id}}/{act}",
        tag="dead letters",
        summary=summary,
        body=body,
        body_required=body_required,
        answers=(answer,),
        problems=_LETTER_CHANGED,
    )


_CHANGED: Final = Answer(OK, "It, as it stands now.", letters.DeadLetterDocument)

DEAD_LETTERS: Final = (
    Route(
        function="get_dead_letters",
        method="GET",
        path="/dead-letters",
        tag="dead letters",
        summary="List dead letters, the newest first",
        parameters=(
            one_of("status", Status),
            one_of("reason", DeadLetterReason),
            one_of("category", Category),
            text("dependency", "Only of this dependency; `(none)` for messages that name none."),
            text("group", "Only of this root cause."),
            CREATED_AFTER,
            instant("created_before", "Created before this instant."),
            *PAGING,
        ),
        answers=page(letters.DeadLetterPage),
        problems=(INVALID, AWAY),
    ),
    Route(
        function="get_dead_letter_groups",
        method="GET",
        path="/dead-letters/groups",
        tag="dead letters",
        summary="List the root causes of open dead letters, the one seen last first",
        parameters=PAGING,
        answers=page(letters.DeadLetterGroupPage),
        problems=(INVALID, AWAY),
    ),
    Route(
        function="get_dead_letter_summary",
        method="GET",
        path="/dead-letters/summary",
        tag="dead letters",
        summary="Count open dead letters and tell the age of the oldest",
        answers=(Answer(OK, "The numbers.", letters.DeadLetterSummary),),
        problems=(AWAY,),
    ),
    Route(
        function="get_dead_letter",
        method="GET",
        path="/dead-letters/{dead_letter_id}",
        tag="dead letters",
        summary="Show a dead letter",
        answers=shown(letters.DeadLetterDocument),
        problems=(MISSING, AWAY),
    ),
    _letter(
        "replay_one_dead_letter",
        "replay",
        "Start the operation of a dead letter again, as it was or edited; its key stays",
        ReplayBody,
        Answer(ACCEPTED, "It was started.", letters.StartedReplay),
    ),
    _letter("archive_dead_letter", "archive", "Put a dead letter away", NoBody, _CHANGED),
    _letter("restore_dead_letter", "restore", "Bring an archived dead letter back", NoBody, _CHANGED),
    _letter(
        "note_dead_letter", "notes", "Add a note to a dead letter", NoteBody, _CHANGED, body_required=True
    ),
    Route(
        function="start_replay_of_many",
        method="POST",
        path="/dead-letters/replays",
        tag="dead letters",
        summary="Replay every open dead letter that a filter finds, or count them",
        body=BulkReplayBody,
        answers=(
            Answer(OK, "The count of a dry run.", letters.MatchedDeadLetters),
            Answer(ACCEPTED, "It was started.", letters.StartedBulkReplay, ("Location", "Retry-After")),
        ),
        problems=(INVALID, TOO_LARGE, AWAY),
    ),
    Route(
        function="get_replay_of_many",
        method="GET",
        path="/dead-letters/replays/{replay_id}",
        tag="dead letters",
        summary="Show how far a bulk replay got",
        answers=shown(letters.BulkReplayDocument),
        problems=(MISSING, AWAY),
    ),
    Route(
        function="cancel_replay_of_many",
        method="DELETE",
        path="/dead-letters/replays/{replay_id}",
        tag="dead letters",
        summary="Cancel a bulk replay; what was replayed stays so",
        answers=(Answer(ACCEPTED, "It was told.", letters.BulkReplayDocument),),
        problems=(MISSING, CONFLICT, AWAY),
    ),
)
