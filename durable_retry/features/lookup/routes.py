"""HTTP: ask whether an operation happened whose end is unknown."""

from durable_retry.base.errors import NoSuchOperationError, WrongOperationStateError
from durable_retry.dead_letters.routes import REFUSALS
from durable_retry.features.lookup.actions import ask_whether_it_happened
from durable_retry.http.answers import ConflictError, NotFoundError, sentence
from durable_retry.http.callers import Act, Caller
from durable_retry.http.routes import Routes, accepted
from durable_retry.hub.binding import TaskHub
from durable_retry.rules.dead_letters.document import StartedReplay
from durable_retry.rules.facts import TargetType

routes = Routes(
    "operations",
    {
        **REFUSALS,
        NoSuchOperationError: lambda _: NotFoundError("operation of this id"),
        WrongOperationStateError: lambda error: ConflictError(sentence(error)),
    },
)


@routes.post(
    "operations/{operation_id}/lookup",
    act=Act("asked whether the operation happened", TargetType.OPERATION),
    answers=accepted(StartedReplay, "It is asked for."),
)
async def look_operation_up(operation_id: str, hub: TaskHub, who: Caller) -> StartedReplay:
    """Ask the dependency whether an operation happened that ended as `AmbiguousOutcome`, and send nothing.

    The operation succeeds with what is found; else it is a dead letter again, which says what was answered.
    """
    return await ask_whether_it_happened(hub, operation_id, who.known_name)
