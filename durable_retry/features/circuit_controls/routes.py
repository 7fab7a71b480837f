"""HTTP: manual control of circuits."""

from typing import Final

from durable_retry.base.errors import NoSuchDependencyError
from durable_retry.features.circuit_controls.controls import (
    CircuitChange,
    ManualControlBody,
    UnchangeableCircuitError,
    control_circuit,
)
from durable_retry.http.answers import ConflictError, NotFoundError, sentence
from durable_retry.http.callers import Act, Caller
from durable_retry.http.routes import Routes, accepted
from durable_retry.hub.binding import TaskHub
from durable_retry.rules.circuit.breaker import ManualControl
from durable_retry.rules.facts import TargetType

routes = Routes(
    "circuits",
    {
        NoSuchDependencyError: lambda _: NotFoundError("dependency of this name"),
        UnchangeableCircuitError: lambda error: ConflictError(sentence(error)),
    },
)

_CONTROLS: Final = (
    ("open_circuit", ManualControl.OPEN, "Hold a circuit open: no attempt goes through."),
    ("close_circuit", ManualControl.CLOSE, "Close a circuit; what waits for it goes in its turn."),
    ("disable_circuit", ManualControl.DISABLE, "Let everything through, whatever fails."),
    (
        "reset_circuit",
        ManualControl.RESET,
        "Close a circuit and forget what it counted.\n\nIts audit of manual changes stays.",
    ),
    (
        "pause_dependency",
        ManualControl.OPEN,
        "Pause a dependency: the same as holding its circuit open.",
    ),
    (
        "resume_dependency",
        ManualControl.CLOSE,
        "Let a paused dependency go on: the same as closing its circuit.",
    ),
)
"""The function of each route, which begins with its verb; what it does, and its description."""


def _add_control(function: str, control: ManualControl, description: str) -> None:
    verb = function.partition("_")[0]

    def words(body: ManualControlBody) -> str:
        whose = "" if body.limit_key is None else f" for {body.limit_key}"
        return f"asked to {verb} the circuit{whose}"

    async def change(dependency: str, body: ManualControlBody, who: Caller, hub: TaskHub) -> CircuitChange:
        return await control_circuit(hub, dependency, control, body, who.name)

    change.__name__, change.__doc__ = function, description
    routes.post(
        f"circuits/{{dependency}}/{verb}",
        body=ManualControlBody,
        answers=accepted(CircuitChange, "The change was sent to the circuit."),
        act=Act(words, TargetType.CIRCUIT),
    )(change)


for _control in _CONTROLS:
    _add_control(*_control)
