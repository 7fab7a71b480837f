"""HTTP: replay one dead letter."""

from durable_retry.dead_letters.routes import REFUSALS
from durable_retry.features.replay.actions import replay_dead_letter
from durable_retry.features.replay.rules import ReplayBody
from durable_retry.http.callers import Act, Caller
from durable_retry.http.routes import Routes, accepted
from durable_retry.hub.binding import TaskHub
from durable_retry.rules.dead_letters.document import StartedReplay
from durable_retry.rules.facts import TargetType
from durable_retry.runtime import clock

routes = Routes("dead letters", REFUSALS)


@routes.post(
    "dead-letters/{dead_letter_id}/replay",
    act=Act("replayed the dead letter", TargetType.DEAD_LETTER),
    body=ReplayBody,
    body_required=False,
    answers=accepted(StartedReplay, "It was started."),
)
async def replay_one_dead_letter(
    dead_letter_id: str, body: ReplayBody, who: Caller, hub: TaskHub
) -> StartedReplay:
    """Start the operation of a dead letter again, as it was or edited.

    Its id and its key stay. The key that the dependency gets stays too, unless the call or the input is
    edited; `downstream_key` chooses.
    """
    return await replay_dead_letter(hub, dead_letter_id, body, clock.now(), by=who.known_name)
