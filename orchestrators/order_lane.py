"""The turn of an operation in the lane of its order key: asked for, waited for, and given back.

When the lane is free, one awaited call of the entity `order_lane` is all. If the lane has not seen the
operation before this one, an activity looks for it, and this one waits behind it unless it is over. If others
are in front, it waits for the event of its turn, which the orchestration `pass_turn` sends for the lane. The
event may be lost, and an operation in front may be gone: so it asks again now and then, and near the front an
activity looks at the lane. One whose deadline passes while everything is held waits for the end of that.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import azure.durable_functions as df
from durabletask import task

from durable_retry.base.names import CANCEL_EVENT
from durable_retry.features.order.names import JOIN, LEAVE, LOOK_AT_LANE, PASS_TURN, TAKE, TURN_EVENT
from durable_retry.features.order.rules.lane import LOOKS_FROM, HeldTurn, Turn, ask_again_seconds
from durable_retry.features.order.rules.members import blocks_its_order
from durable_retry.features.order.store import lane_id, message_of
from durable_retry.hub.turns import Turns, call_entity
from durable_retry.rules.retry.constraints import is_over
from durable_retry.rules.retry.decide import DeadLetter, Wait, too_late, while_blocked
from durable_retry.rules.retry.history import PastWait, WaitKind
from durable_retry.settings.configuration import function_name

from .run import Listener, Run

blueprint = df.Blueprint()

_NO_ANSWER = ("its order lane does not answer",)


def begin(run: Run) -> Turns[DeadLetter | None]:
    """Wait until the operation begins and has its turn, unless someone cancels it.

    Returns:
        Its dead letter when its deadline passed meanwhile; None when it has its turn, was cancelled, or asks
        again in a history of its own.
    """
    if run.operation.start_at is not None and not run.has_begun:
        yield from run.wait_for_start(run.operation.start_at)
    while run.goes_on and (yield from run.hold()):
        wait = _latest_wait(run)
        if wait is not None and is_over(run.operation.deadline_at, run.now):
            if (yield from _wait_while_held(run, wait)):
                continue
            why = "; ".join(wait.delay_reasons)
            return too_late(run.operation, f"the deadline passed while it waited for its turn: {why}")
        turn = yield from _ask(run)
        if turn is not None and turn.missing is not None:
            turn = yield from _fill_gap(run, turn, turn.missing)
        if (turn is not None and turn.has_turn) or (yield from _wait_for_turn(run, turn)):
            if _latest_wait(run) is not None:
                run.state = replace(run.state, due_at=run.now)
            return None
        run.laps += 1
    return None


def _latest_wait(run: Run) -> PastWait | None:
    """Return its latest wait for its turn; None when it has not waited for that."""
    waits = reversed(run.state.history.waits)
    return next((wait for wait in waits if wait.kind is WaitKind.ORDER), None)


def _wait_while_held(run: Run, wait: PastWait) -> Turns[bool]:
    """Give an operation, whose deadline has passed, the time again for which it waited while all was held.

    Where everything is held now, it waits for the end of that. Returns whether it has time again.
    """
    request = {"held": run.operation.dependency, "operation_id": run.operation.operation_id}
    try:
        answer = yield from _call_look(run, request)
    except task.TaskFailedError:
        return False
    deadline_at = run.operation.deadline_at
    # Another look's answer may come in its place, see `hub.turns.call_until_success`.
    if not isinstance(answer, Mapping) or "since" not in answer or deadline_at is None:
        return False
    held = HeldTurn.from_json(answer)
    decision = None if held.refused is None else while_blocked(run.operation, held.refused, run.now)
    since, ended_at = max(held.since, wait.began_at), held.ended_at or run.now
    later = deadline_at + (ended_at - since)
    if isinstance(decision, Wait):
        run.move_deadline(later)
        yield from run.wait_beside(decision)
    elif later > run.now:
        run.move_deadline(later)
        run.note_wait(WaitKind.FREEZE, since, ended_at, held.why)
    else:
        return False
    run.laps += 1
    return True


def _ask(run: Run, *, has_looked: bool = False) -> Turns[Turn | None]:
    """Ask the lane; None when it does not answer: to go on then could break the order.

    Args:
        has_looked: Whether the operation before it was looked for, so that the lane need not have seen it.
    """
    message = message_of(run.operation, run=run.operation.run)
    if message is None:
        return Turn(has_turn=True)
    request = (replace(message, after=None) if has_looked else message).to_json()
    try:
        answer = yield from call_entity(run.signals, lane_id(message.order_key), TAKE, request)
    except task.TaskFailedError:
        return None
    return Turn.from_json(answer)


def _fill_gap(run: Run, turn: Turn, missing: str) -> Turns[Turn | None]:
    """Bring the operation before it into the lane, where it is not over, and ask again."""
    try:
        join = yield from _call_look(run, {"order_key": run.operation.order_key, "unseen": missing})
        if isinstance(join, dict):
            yield from call_entity(run.signals, lane_id(join["order_key"]), JOIN, join)
    except task.TaskFailedError:
        return turn  # The operation waits until that is known.
    return (yield from _ask(run, has_looked=True))


def _wait_for_turn(run: Run, turn: Turn | None) -> Turns[bool]:
    """Wait until the lane is to be asked again; return whether it has its turn, as an event said."""
    has_turn = False

    def is_its_turn(event: Any) -> bool:
        # The event may be a late one, for an earlier run of the operation.
        nonlocal has_turn
        has_turn = isinstance(event, dict) and event.get("run") == run.operation.run
        return has_turn

    until, reasons = _next_question(run, turn)
    run.listener = Listener(TURN_EVENT, is_its_turn)
    yield from run.wait_for(WaitKind.ORDER, until, reasons)
    run.listener = None
    is_near = turn is not None and 0 < turn.ahead <= LOOKS_FROM
    if is_near and not has_turn and not run.signals.has_come(CANCEL_EVENT):
        yield from _look(run)
    return has_turn


def _next_question(run: Run, turn: Turn | None) -> tuple[datetime, tuple[str, ...]]:
    """Return when the lane is asked again, and why then."""
    ahead, reasons = (0, _NO_ANSWER) if turn is None else (turn.ahead, turn.reasons)
    since = run.now if turn is None else turn.front_since or run.now
    again_seconds = ask_again_seconds(ahead, (run.now - since).total_seconds())
    until = run.now + timedelta(seconds=again_seconds)
    if run.operation.deadline_at is not None:
        until = max(run.now, min(until, run.operation.deadline_at))
    return until, reasons


def _look(run: Run) -> Turns[None]:
    # A look that fails does no harm: the next one follows the next question.
    with suppress(task.TaskFailedError):
        yield from _call_look(run, {"order_key": run.operation.order_key})


def _call_look(run: Run, request: dict[str, Any]) -> Turns[Any]:
    answer_task = yield from run.signals.answer(
        lambda: run.ctx.call_activity(function_name(LOOK_AT_LANE), input=request)
    )
    if answer_task is None:
        raise task.TaskFailedError("the answer was lost", TimeoutError())
    return answer_task.get_result()


def end(run: Run, document: Mapping[str, Any]) -> None:
    """Leave the lane at the operation's end, with the dead letter that it ended as, if that blocks."""
    letter = document["dead_letter"] if blocks_its_order(run.operation) else None
    message = message_of(run.operation, run=run.operation.run, dead_letter_id=(letter or {}).get("id"))
    if message is not None:
        run.ctx.signal_entity(lane_id(message.order_key), LEAVE, message.to_json())


def pass_turn(ctx: task.OrchestrationContext, input_: dict[str, Any]) -> Turns[None]:
    """Tell an operation that it has its turn: `operation_id`, and the `run` that waits."""
    ctx.send_event(input_["operation_id"], TURN_EVENT, data={"run": input_["run"]})
    yield from ()


blueprint.orchestration_trigger(context_name="context", orchestration=PASS_TURN)(pass_turn)
