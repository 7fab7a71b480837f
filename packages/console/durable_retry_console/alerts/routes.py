"""HTTP: what alerts are raised, the latest incidents, and silences."""

from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Annotated, Final

import azure.functions as func
from pydantic import Field

from durable_retry import clock
from durable_retry.engine.base.instants import from_rfc3339
from durable_retry.engine.base.validation import InstantText, InvalidInputError, Problem, Strict, checked
from durable_retry.engine.facts import TargetType
from durable_retry.http.answers import json_answer, required
from durable_retry.http.callers import Act, Caller
from durable_retry.http.routes import AWAY, MISSING, OK, RouteAnswer, Routes, shown
from durable_retry.runtime.binding import TaskHub
from durable_retry_console.alerts.board import begin_silence, lift_silence, read_board, try_receivers
from durable_retry_console.alerts.document import AlertBoard, AlertTests
from durable_retry_console.alerts.rules import CONDITIONS, EVERY_CONDITION, Silence

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
        for_minutes: How long, up to a week; or `until`.
        until: When it ends, within a week; in place of `for_minutes`.
        reason: Why, for whoever looks later.
        receiver: The name of the only one whose messages it keeps back; all of them when left out.
    """

    condition: Annotated[str, Field(max_length=300), checked(_condition_problem)]
    for_minutes: Annotated[float, Field(gt=0, le=_MAX_MINUTES)] | None = None
    until: InstantText | None = None
    reason: Annotated[
        str, Field(max_length=500), checked(lambda text: None if text.strip() else "must say why")
    ]
    receiver: str | None = None

    def ends_at(self, now: datetime) -> datetime:
        """Return when it ends.

        Raises:
            InvalidInputError: Neither or both ends are given, or it is not within a week from now.
        """
        if (self.until is None) == (self.for_minutes is None):
            raise InvalidInputError([Problem("", "needs for_minutes or until, and not both")])
        if self.until is None:
            return now + timedelta(minutes=self.for_minutes or 0)
        until = from_rfc3339(self.until)
        if not now < until <= now + timedelta(minutes=_MAX_MINUTES):
            raise InvalidInputError([Problem("/until", "must be within a week from now")])
        return until


@routes.get("alerts", answers=shown(AlertBoard))
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
)
async def silence_alerts(body: SilenceBody, who: Caller) -> func.HttpResponse:
    """Keep back messages about what is raised, for some time.

    What is still raised when the silence ends is sent then. The end of an incident is always sent to those
    who were sent its beginning.
    """
    until, reason = body.ends_at(clock.now()), body.reason.strip()
    silence = await begin_silence(body.condition, until, receiver=body.receiver, reason=reason, by=who.name)
    return json_answer(silence, HTTPStatus.CREATED)


@routes.post(
    "alerts/test",
    act=Act("sent a test of the alerts", TargetType.ALERT, "condition"),
    answers=(RouteAnswer(OK, "What became of it, receiver by receiver.", AlertTests),),
    errors=(),
)
async def try_receivers_of_alerts(hub: TaskHub) -> func.HttpResponse:
    """Send a message to every receiver at once that says that it is a test."""
    return json_answer(await try_receivers(hub))


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
