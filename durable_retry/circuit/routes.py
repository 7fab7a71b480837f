"""HTTP: the circuit of each dependency."""

from typing import Final

from durable_retry.base.answers import Answer
from durable_retry.base.errors import NoSuchDependencyError
from durable_retry.circuit.circuits import documents, every_circuit, find_circuit
from durable_retry.http.answers import NotFoundError
from durable_retry.http.parameters import text
from durable_retry.http.routes import Query, Routes, page, shown
from durable_retry.hub.binding import TaskHub
from durable_retry.rules.circuit.messages import CircuitDocument

routes = Routes("circuits", {NoSuchDependencyError: lambda _: NotFoundError("dependency of this name")})

LIMIT_KEY: Final = text("limit_key", "The circuit of this limit key, where `circuit.by` is `limit_key`.")
MOVING: Final = frozenset({"from"})
"""Fields of a circuit's document that the entity tag leaves out: they change with the time of the request."""


@routes.get("circuits", answers=page(documents().page), moving=MOVING)
async def list_circuits(hub: TaskHub) -> Answer:
    """Show the circuit of every dependency."""
    # A file holds the dependencies, so they are few: one page has them all.
    return documents().page(items=tuple(await every_circuit(hub)))


@routes.get("circuits/{dependency}", parameters=(LIMIT_KEY,), answers=shown(documents().whole), moving=MOVING)
async def get_circuit(dependency: str, query: Query, hub: TaskHub) -> CircuitDocument:
    """Show the circuit of a dependency, or of one of its limit keys, and its limits."""
    return await find_circuit(hub, dependency, query[LIMIT_KEY])
