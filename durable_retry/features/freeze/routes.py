"""HTTP: hold everything, look at that, and let it go in waves."""

from durable_retry.features.freeze.hold import (
    NothingHeldError,
    ThawUnderWayError,
    hold_document,
    hold_everything,
    thaw,
)
from durable_retry.features.freeze.rules import (
    FreezeBody,
    HoldDocument,
    HoldFigures,
    StartedThaw,
    ThawBody,
)
from durable_retry.http.answers import ConflictError, sentence
from durable_retry.http.callers import Act, Caller
from durable_retry.http.routes import AWAY, CONFLICT, Routes, accepted
from durable_retry.hub.binding import TaskHub
from durable_retry.rules.facts import TargetType

routes = Routes(
    "the app",
    {
        NothingHeldError: lambda error: ConflictError(sentence(error)),
        ThawUnderWayError: lambda error: ConflictError(sentence(error)),
    },
)


@routes.get("hold")
async def get_hold(hub: TaskHub) -> HoldDocument:
    """Show whether everything is held, and what would run within the hour.

    The preview counts operations that wait, whether they are held or not; it is there before a hold, too.
    """
    return await hold_document(hub)


@routes.post(
    "hold",
    body=FreezeBody,
    act=Act("held everything", TargetType.APP, "since"),
    answers=accepted(HoldFigures, "Every circuit is told."),
)
async def hold_all(body: FreezeBody, who: Caller, hub: TaskHub) -> HoldFigures:
    """Hold everything: operations are accepted, and no attempt starts at any dependency.

    What is under way ends, and is recorded. Another hold takes the place of this one.
    """
    return await hold_everything(hub, body, who.name)


@routes.post(
    "hold/thaw",
    body=ThawBody,
    body_required=False,
    errors=(CONFLICT, AWAY),
    act=Act("thawed what was held", TargetType.APP, "since"),
    answers=accepted(StartedThaw, "The first wave goes."),
)
async def thaw_hold(body: ThawBody, who: Caller, hub: TaskHub) -> StartedThaw:
    """Let what is held go in waves, and watch the circuits.

    The first circuit that opens stops it: everything is held again, with that as the reason. One that comes
    before the first wave takes the place of this one; a later one is refused.
    """
    return await thaw(hub, body, who.name)
