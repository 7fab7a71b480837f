"""HTTP: the circuit of each dependency, and manual control of it."""

from http import HTTPStatus
from typing import Final

import azure.functions as func

from durable_retry.base.answers import Page
from durable_retry.base.errors import NoSuchDependencyError, UnchangeableCircuitError
from durable_retry.circuit.circuits import ManualControlBody, control_circuit, every_circuit, find_circuit
from durable_retry.http.answers import ConflictError, NotFoundError, json_answer, sentence
from durable_retry.http.callers import Act, Caller
from durable_retry.http.parameters import text
from durable_retry.http.routes import Query, Routes, accepted, page, shown
from durable_retry.hub.binding import TaskHub
from durable_retry.rules.circuit.breaker import ManualControl
from durable_retry.rules.circuit.messages import CircuitChange
from durable_retry.rules.facts import TargetType
from durable_retry.rules.limits.document import LimitedCircuit, ListedCircuit

routes = Routes(
    "circuits",
    {
        NoSuchDependencyError: lambda _: NotFoundError("dependency of this name"),
        UnchangeableCircuitError: lambda error: ConflictError(sentence(error)),
    },
)

LIMIT_KEY: Final = text("limit_key", "The circuit of this limit key, where `circuit.by` is `limit_key`.")
MOVING: Final = frozenset({"from"})
"""Fields of a circuit's document that the entity tag leaves out: they change with the time of the request."""


@routes.get("circuits", answers=page(Page[ListedCircuit]))
async def list_circuits(hub: TaskHub) -> func.HttpResponse:
    """Show the circuit of every dependency."""
    # A file holds the dependencies, so they are few: one page has them all.
    items = tuple(await every_circuit(hub))
    return json_answer(Page[ListedCircuit](items=items), moving=MOVING)


@routes.get("circuits/{dependency}", parameters=(LIMIT_KEY,), answers=shown(LimitedCircuit))
async def get_circuit(dependency: str, query: Query, hub: TaskHub) -> func.HttpResponse:
    """Show the circuit of a dependency, or of one of its limit keys, and its limits."""
    return json_answer(await find_circuit(hub, dependency, query[LIMIT_KEY]), moving=MOVING)


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

    async def change(
        dependency: str, body: ManualControlBody, who: Caller, hub: TaskHub
    ) -> func.HttpResponse:
        changed = await control_circuit(hub, dependency, control, body, who.name)
        return json_answer(changed, HTTPStatus.ACCEPTED)

    change.__name__, change.__doc__ = function, description
    routes.post(
        f"circuits/{{dependency}}/{verb}",
        body=ManualControlBody,
        answers=accepted(CircuitChange, "The change was sent to the circuit."),
        act=Act(words, TargetType.CIRCUIT),
    )(change)


for _control in _CONTROLS:
    _add_control(*_control)
