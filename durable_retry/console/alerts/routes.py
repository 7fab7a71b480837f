"""HTTP: what alerts are raised, the latest incidents, and silences."""

from datetime import timedelta
from http import HTTPStatus
from typing import Annotated, Final

import azure.functions as func
from pydantic import Field

from durable_retry.console.alerts.board import begin_silence, lift_silence, read_board
from durable_retry.console.alerts.document import AlertBoard
from durable_retry.console.alerts.rules import CONDITIONS, EVERY_CONDITION, Silence
from durable_retry.engine.base.validation import Strict, checked
from durable_retry.engine.facts import TargetType
from durable_retry.http.answers import json_answer, required
from durable_retry.http.callers import Caller
from durable_retry.http.routes import AWAY, MISSING, OK, Act, RouteAnswer, Routes, shown

routes = Routes("alerts")

_MAX_MINUTES: Final = 7 * 24 * 60


def _condition_problem(text: str) -> str | None:
    if text == EVERY_CONDITION or text.partition(":")[0] in CONDITIONS:
        return None
    return f"must be * or one of {', '.join(CONDITIONS)}, with `:` and a dependency for one circuit"


class SilenceBody(Strict):
    """The body of a silence.

    Attributes:
        condition: Its name, or `*` for all. `circuit_open` without a dependency covers all circuits.
        for_minutes: How long.
        reason: Why, for whoever looks later.
    """

    condition: Annotated[str, Field(max_length=300), checked(_condition_problem)]
    for_minutes: Annotated[float, Field(gt=0, le=_MAX_MINUTES)]
    reason: Annotated[
        str, Field(max_length=500), checked(lambda text: None if text.strip() else "must say why")
    ]


@routes.get("alerts", answers=shown(AlertBoard), errors=(AWAY,))
async def list_alerts() -> func.HttpResponse:
    """Show what is raised, what was lately, the silences and the receivers.

    A timer compares every minute.
    """
    return json_answer(await read_board())


@routes.post(
    "alerts/silences",
    act=Act("silenced alerts", TargetType.SILENCE, "id"),
    body=SilenceBody,
    answers=(RouteAnswer(HTTPStatus.CREATED, "It holds from now on.", Silence),),
    errors=(AWAY,),
)
async def silence_alerts(body: SilenceBody, who: Caller) -> func.HttpResponse:
    """Keep back messages about what is raised, for some time.

    What is still raised when the silence ends is sent then. The end of an incident is always sent to those
    who were sent its beginning.
    """
    length = timedelta(minutes=body.for_minutes)
    silence = await begin_silence(body.condition, length, body.reason.strip(), who.name)
    return json_answer(silence, HTTPStatus.CREATED)


@routes.delete(
    "alerts/silences/{silence_id}",
    act=Act("ended a silence", TargetType.SILENCE),
    answers=(RouteAnswer(OK, "It ended.", Silence),),
    errors=(MISSING, AWAY),
)
async def end_silence(silence_id: str) -> func.HttpResponse:
    """End a silence."""
    silence = required(await lift_silence(silence_id), "silence of this id")
    return json_answer(silence)
