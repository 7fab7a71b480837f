"""Changes of circuits by hand."""

import uuid
from datetime import datetime
from typing import Annotated, Final

from pydantic import Field

from durable_retry.base.answers import Answer, left_out
from durable_retry.base.names import RESET
from durable_retry.base.validation import Label, Strict, checked, with_example
from durable_retry.circuit.circuits import required_dependency
from durable_retry.circuit.entity import CircuitEntity
from durable_retry.features.circuit_controls.names import RELEASE_WAITING
from durable_retry.hub.entity_ids import limiter_id
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.circuit.breaker import FREE, Breaker, ManualControl, advanced
from durable_retry.rules.circuit.messages import why_held
from durable_retry.rules.circuit.states import CircuitState
from durable_retry.rules.circuit.transitions import ManualAction
from durable_retry.runtime import clock

_YEAR_SECONDS: Final = 31_536_000.0


class ManualControlBody(Strict):
    """The body of a manual change.

    Attributes:
        reason: Why, for the audit; 200 characters of it are kept.
        for_seconds: How long opening or disabling lasts; None means until the next manual change. Closing and
            resetting have no length.
        stops_deadline: Whether the deadlines of operations that wait for it stop while it is held open.
            Without meaning for everything else.
        epoch: The epoch of the circuit as the caller saw it; in any other nothing is changed. None changes it
            anyway.
        limit_key: Whose circuit it is for, where `circuit.by` is `limit_key`. None means the dependency's,
            which holds all keys while it is held open.
    """

    model_config = with_example(reason="The supplier has an outage.", for_seconds=600.0)

    reason: Annotated[
        str, Field(max_length=2_000), checked(lambda text: None if text.strip() else "must say why")
    ]
    for_seconds: Annotated[float, Field(gt=0, le=_YEAR_SECONDS)] | None = None
    stops_deadline: bool = False
    epoch: Annotated[int, Field(ge=1)] | None = None
    limit_key: Label | None = None


class CircuitChange(Answer):
    """A manual change that was accepted."""

    dependency: str
    action: ManualControl
    reason: str
    for_seconds: float | None
    stops_deadline: bool = Field(
        description="Whether deadlines of operations that wait for it stop meanwhile."
    )
    limit_key: str | None = left_out("Whose circuit it is. Left out for the dependency's own.")
    still_held: str | None = left_out(
        "What holds calls up all the same, such as a pause, and what would end it. Left out without any."
    )


class UnchangeableCircuitError(Exception):
    """The circuit takes no manual change as it is; the text is a clause that says why."""


async def control_circuit(
    hub: TaskHub, name: str, control: ManualControl, body: ManualControlBody, by: str
) -> CircuitChange:
    """Change a circuit by hand.

    Raises:
        UnchangeableCircuitError: It is switched off, or no longer in the epoch that the change is for.
    """
    dependency = required_dependency(name, body.limit_key)
    if not dependency.circuit.enabled:
        why = "is switched off by circuit.enabled = false in dependencies.toml"
        hint = "to hold its calls, pause its operations by a bulk action"
        raise UnchangeableCircuitError(f"the circuit of {dependency.name} {why}; {hint}")
    circuit, now = CircuitEntity(hub, dependency.name, body.limit_key), clock.now()
    breaker, _ = await circuit.readable()
    _check_epoch(dependency.name, advanced(breaker, now).epoch, body.epoch)
    action = ManualAction(
        control,
        now,
        by,
        body.reason.strip(),
        body.for_seconds,
        body.epoch,
        stops_deadline=body.stops_deadline or None,
        limit_key=body.limit_key,
        by_key=(dependency.circuit.is_by_key and body.limit_key is None) or None,
    )
    await circuit.control(action)
    if control is ManualControl.RESET and dependency.bounds is not None and body.limit_key is None:
        await reset_limiter(hub, dependency.name)
    await start_release(hub, dependency.name, action)
    own = breaker if body.limit_key is None else (await CircuitEntity(hub, dependency.name).readable())[0]
    return CircuitChange(
        dependency=dependency.name,
        action=control,
        reason=body.reason,
        for_seconds=body.for_seconds,
        stops_deadline=body.stops_deadline,
        limit_key=body.limit_key,
        still_held=_still_held(action.apply(breaker, now), own, now),
    )


def _check_epoch(dependency: str, current: int, epoch: int | None) -> None:
    # The circuit itself checks again when the change arrives.
    if epoch is not None and current != epoch:
        what = f"the circuit of {dependency} is in epoch {current} by now, not {epoch}"
        raise UnchangeableCircuitError(what)


def _still_held(breaker: Breaker, own: Breaker, now: datetime) -> str | None:
    """Return what holds up the calls of a circuit that lets them through, and what would end it; or None.

    Args:
        own: The dependency's own circuit as it was: held open by hand, it holds those of limit keys, too.
    """
    if breaker.state not in FREE:
        return None
    if own.is_frozen(now):
        return f"{why_held(own, now)}; thaw ends that"
    if breaker.limit_key is not None and own.state is CircuitState.FORCED_OPEN:
        return f"{why_held(own, now)}; close the dependency's own circuit"
    why = why_held(breaker, now)
    return None if why is None else f"{why}; reset ends the pause"


async def reset_limiter(hub: TaskHub, dependency: str) -> None:
    """Signal the limiter to forget who waits and which turns are reserved."""
    await hub.signal_entity(limiter_id(dependency), RESET, {})


async def start_release(hub: TaskHub, dependency: str, action: ManualAction) -> None:
    """Start the orchestration that sends the manual control until it takes effect, and wakes what waits."""
    input_ = {"dependency": dependency, "hand": action.to_json()}
    await hub.start_instance(RELEASE_WAITING, f"release-{dependency}-{uuid.uuid4().hex}", input_, again=False)
