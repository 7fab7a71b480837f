"""The turn of an operation in the lane of its order key: asked for, waited for, and given back.

One awaited call of the entity `order_lane` when the lane is free. Who finds that the operation before it was
not seen there has it looked for, and waits behind it unless it is over. Who finds somebody in front waits for
the event that gives it the turn, which the orchestration `pass_turn` sends for the lane. The event may be
lost, and whoever is in front may be gone: so it asks again now and then, and near the front lets it be looked
at.
"""

from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import azure.durable_functions as df
from durabletask import task

from durable_retry.engine.base.names import (
    CANCEL_EVENT,
    JOIN,
    LEAVE,
    LOOK_AT_LANE,
    PASS_TURN,
    TAKE,
    TURN_EVENT,
)
from durable_retry.engine.order_lanes.lane import LOOKS_FROM, Turn, ask_again_seconds
from durable_retry.engine.retry.constraints import is_over
from durable_retry.engine.retry.decide import DeadLetter, overdue_in_order
from durable_retry.engine.retry.history import WaitKind
from durable_retry.runtime.turns import Turns, call_entity
from durable_retry.settings.configuration import function_name
from durable_retry.stores.order_lanes import lane_id, message_of

from .run import Run

blueprint = df.Blueprint()

_SILENT = ("its order lane does not answer",)


def wait_for_turn(run: Run) -> Turns[DeadLetter | None]:
    """Ask for the turn, and wait a while where somebody is in front.

    Returns:
        What the operation ends as when its deadline passed while it waited; else None, and `run.has_turn`
        says whether it has its turn.
    """
    if run.state.history.order_waits and is_over(run.operation.deadline_at, run.now):
        return overdue_in_order(run.operation, run.state.history)
    turn = yield from _ask(run, after=run.operation.order_after)
    if turn is not None and turn.missing is not None:
        turn = yield from _fill_gap(run, turn, turn.missing)
    if turn is not None and turn.has_turn:
        run.begin_turn()
        return None
    until, reasons = _next_question(run, turn)
    yield from run.wait_for(WaitKind.ORDER, until, reasons)
    if run.has_turn:
        run.begin_turn()
    elif not run.signals.has_come(CANCEL_EVENT) and turn is not None and 0 < turn.ahead <= LOOKS_FROM:
        yield from _look(run)
    return None


def _ask(run: Run, *, after: str | None) -> Turns[Turn | None]:
    """Ask the lane; None when it does not answer, and nobody goes on then: it would be out of order.

    Args:
        after: The operation before it, which the lane must have seen; None where somebody has looked for it.
    """
    message = message_of(run.operation, run=run.operation.run)
    if message is None:
        return Turn(has_turn=True)
    asked = replace(message, after=after).to_json()
    try:
        answer = yield from call_entity(run.signals, lane_id(message.order_key), TAKE, asked)
    except task.TaskFailedError:
        return None
    return Turn.from_json(answer)


def _fill_gap(run: Run, turn: Turn, missing: str) -> Turns[Turn | None]:
    """Bring the operation before it into the lane, where it is not over, and ask again."""
    looked = {"order_key": run.operation.order_key, "unseen": missing}
    try:
        join = yield from _looked_at(run, looked)
        if isinstance(join, dict):
            yield from call_entity(run.signals, lane_id(join["order_key"]), JOIN, join)
    except task.TaskFailedError:
        return turn  # Nobody goes on before it is known.
    return (yield from _ask(run, after=None))


def _next_question(run: Run, turn: Turn | None) -> tuple[datetime, tuple[str, ...]]:
    """Return when the lane is asked again, and why then."""
    ahead, reasons = (0, _SILENT) if turn is None else (turn.ahead, turn.reasons)
    since = run.now if turn is None else turn.front_since or run.now
    again_seconds = ask_again_seconds(ahead, (run.now - since).total_seconds())
    until = run.now + timedelta(seconds=again_seconds)
    if run.operation.deadline_at is not None:
        until = max(run.now, min(until, run.operation.deadline_at))
    return until, reasons


def _look(run: Run) -> Turns[None]:
    # It only helps: who asks again waits for the next look if this one fails.
    with suppress(task.TaskFailedError):
        yield from _looked_at(run, {"order_key": run.operation.order_key})


def _looked_at(run: Run, looked: dict[str, Any]) -> Turns[Any]:
    called = yield from run.signals.answer(
        lambda: run.ctx.call_activity(function_name(LOOK_AT_LANE), input=looked)
    )
    if called is None:
        raise task.TaskFailedError("the answer was lost", TimeoutError())
    return called.get_result()


def give_turn_back(run: Run, dead_letter_id: str | None = None) -> None:
    """Leave the lane at the operation's end, with the dead letter that it ended as; without one, none."""
    message = message_of(
        run.operation,
        run=run.operation.run,
        dead_letter_id=dead_letter_id if run.operation.blocks_its_order else None,
    )
    if message is not None:
        run.ctx.signal_entity(lane_id(message.order_key), LEAVE, message.to_json())


def pass_turn(ctx: task.OrchestrationContext, input_: dict[str, Any]) -> Turns[None]:
    """Tell an operation that it has its turn: `operation_id`, and the `run` that waits."""
    ctx.send_event(input_["operation_id"], TURN_EVENT, data={"run": input_["run"]})
    yield from ()


blueprint.orchestration_trigger(context_name="context", orchestration=PASS_TURN)(pass_turn)
