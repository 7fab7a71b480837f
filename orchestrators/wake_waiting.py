"""The orchestration that repeats a manual change of a circuit, and wakes the operations that it releases."""

from contextlib import suppress
from typing import Any

import azure.durable_functions as df
from durabletask import task

from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.names import MANUAL_CONTROL
from durable_retry.circuit.entity import BETWEEN_PASSES, PASSES, SETTLE
from durable_retry.features.circuit_controls.names import (
    RELEASE_WAITING,
    WAKE_WAITING,
)
from durable_retry.hub.entity_ids import circuit_id
from durable_retry.hub.turns import Signals, Turns, call_entity, call_until_success, pause
from durable_retry.rules.circuit.breaker import ManualControl

blueprint = df.Blueprint()


def release_waiting(ctx: task.OrchestrationContext, input_: dict[str, Any]) -> Turns[dict[str, Any] | None]:
    """Send a manual change until its circuit has it, and wake the operations that it lets go on.

    All may be woken at once: each asks the circuit again, and is released in its turn.

    Args:
        input_: `dependency`, and `hand`, the manual change; `progress` of an earlier execution.

    Returns:
        `{"woken": n}`; None when the orchestration continues as new.
    """
    progress, signals = input_.get("progress"), Signals(ctx)
    if progress is None:
        yield from _repeat_change(signals, input_)
        if input_["hand"]["control"] == ManualControl.OPEN:
            return {"woken": 0}
        progress = yield from _begin_waking(signals)
    step = {name: progress[name] for name in ("changed_at", "position")}
    step |= {"dependency": input_["dependency"]}
    step |= {name: input_["hand"][name] for name in ("limit_key",) if name in input_["hand"]}
    answer = yield from call_until_success(signals, WAKE_WAITING, step)
    progress = progress | {
        "position": answer["following"],
        "woken": progress["woken"] + answer["woken"],
        "woken_in_pass": progress["woken_in_pass"] + answer["woken"],
    }
    if answer["following"] is None:
        if progress["woken_in_pass"] == 0 or progress["passes"] == PASSES:
            return {"woken": progress["woken"]}
        progress |= {"woken_in_pass": 0, "passes": progress["passes"] + 1}
        yield from pause(signals, BETWEEN_PASSES)
    ctx.continue_as_new(input_ | {"progress": progress})
    return None


def _repeat_change(signals: Signals, input_: dict[str, Any]) -> Turns[None]:
    # The same message again, but as an awaited call: what follows must come after the change. Without an
    # answer the operations are woken nevertheless: each asks the circuit, which may refuse it again.
    with suppress(task.TaskFailedError):
        circuit = circuit_id(input_["dependency"], input_["hand"].get("limit_key"))
        yield from call_entity(signals, circuit, MANUAL_CONTROL, input_["hand"])


def _begin_waking(signals: Signals) -> Turns[dict[str, Any]]:
    """Wait until every worker sees the manual change."""
    yield from pause(signals, SETTLE)
    changed_at = to_rfc3339(signals.now)
    return {"changed_at": changed_at, "position": None, "woken": 0, "woken_in_pass": 0, "passes": 1}


blueprint.orchestration_trigger(context_name="context", orchestration=RELEASE_WAITING)(release_waiting)
