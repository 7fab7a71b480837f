"""The hold of an operation without attempts or time left, in place of its dead letter."""

from durable_retry.base.names import CANCEL_EVENT, PAUSE_EVENT, OperationState
from durable_retry.features.holding.rules import BY_POLICY, held_until, pause_in_place_of
from durable_retry.hub.turns import Turns
from durable_retry.rules.facts import ActedOn
from durable_retry.rules.retry.decide import DeadLetter
from durable_retry.rules.retry.history import WaitKind
from durable_retry.telemetry.facts import report

from .run import Run


def hold(run: Run, letter: DeadLetter) -> Turns[bool]:
    """Pause the operation until somebody lets it go on or cancels it; return whether it does not end.

    It goes on with all its attempts and all its time, when the dependency's `Retry-After` is over.
    """
    actions = run.state.history.actions or ()
    if actions and (actions[-1].action, actions[-1].by) == (PAUSE_EVENT, BY_POLICY):
        return False  # It was held for this end, and nobody came.
    until = held_until(run.operation.policy, letter, run.now)
    if until is None or run.signals.has_come(CANCEL_EVENT):
        return until is not None
    if not run.ctx.is_replaying:
        report(ActedOn(run.status(OperationState.PAUSED).to_json(), PAUSE_EVENT, BY_POLICY))
    is_resumed = yield from run.stand_still(until, pause_in_place_of(letter))
    if is_resumed:
        run.begin_anew()
        for asked in letter.asked:
            if asked.at > run.now:
                yield from run.wait_for(WaitKind.RETRY, asked.at, asked.reasons)
    return is_resumed or run.signals.has_come(CANCEL_EVENT)
