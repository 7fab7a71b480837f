"""HTTP: the circuit of each dependency."""

from typing import Final

import azure.functions as func

from durable_retry.base.errors import NoSuchDependencyError
from durable_retry.circuit.circuits import documents, every_circuit, find_circuit
from durable_retry.http.answers import NotFoundError, json_answer
from durable_retry.http.parameters import text
from durable_retry.http.routes import Query, Routes, page, shown
from durable_retry.hub.binding import TaskHub

routes = Routes("circuits", {NoSuchDependencyError: lambda _: NotFoundError("dependency of this name")})

LIMIT_KEY: Final = text("limit_key", "The circuit of this limit key, where `circuit.by` is `limit_key`.")
MOVING: Final = frozenset({"from"})
"""Fields of a circuit's document that the entity tag leaves out: they change with the time of the request."""


@routes.get("circuits", answers=page(documents().page))
async def list_circuits(hub: TaskHub) -> func.HttpResponse:
    """Show the circuit of every dependency."""
    # A file holds the dependencies, so they are few: one page has them all.
    items = tuple(await every_circuit(hub))
    return json_answer(documents().page(items=items), moving=MOVING)


@routes.get("circuits/{dependency}", parameters=(LIMIT_KEY,), answers=shown(documents().whole))
async def get_circuit(dependency: str, query: Query, hub: TaskHub) -> func.HttpResponse:
    """Show the circuit of a dependency, or of one of its limit keys, and its limits."""
    return json_answer(await find_circuit(hub, dependency, query[LIMIT_KEY]), moving=MOVING)
