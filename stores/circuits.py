"""The circuits of this process: one copy per event loop, task hub and dependency."""

import asyncio
import uuid
from typing import Final
from weakref import WeakKeyDictionary

from engine.circuit import ReportBuffer
from engine.dependency import Dependency
from stores.circuit_copy import CircuitCopy
from stores.circuit_entity import CircuitEntity
from stores.circuit_reporting import Gate

_REPORTER_CHARACTERS: Final = 32

type _Copies = dict[tuple[str, str], CircuitCopy]

_copies: WeakKeyDictionary[asyncio.AbstractEventLoop, _Copies] = WeakKeyDictionary()


def circuit_of(hub: str, dependency: Dependency) -> CircuitCopy | None:
    """Return the running loop's copy of a dependency's circuit, making it at first use.

    Args:
        hub: Configuration of the durable client.
        dependency: Whose circuit.

    Returns:
        None when the dependency has neither a circuit nor a retry budget: then nothing is asked or told.
    """
    gate = Gate(dependency.name, dependency.circuit, dependency.retry_budget)
    if gate.is_open:
        return None
    copies = _copies.setdefault(asyncio.get_running_loop(), {})
    known = copies.get((hub, dependency.name))
    if known is None or known.gate != gate:
        known = _new_copy(hub, gate)
        copies[hub, dependency.name] = known
    return known


def close_circuits() -> None:
    """Forget the running loop's copies; for tests and benchmarks, the host just ends the process."""
    for copy in _copies.pop(asyncio.get_running_loop(), {}).values():
        copy.reporting.close()


def _new_copy(hub: str, gate: Gate) -> CircuitCopy:
    reporter = uuid.uuid4().hex[:_REPORTER_CHARACTERS]
    return CircuitCopy(gate, CircuitEntity(hub, gate.dependency), ReportBuffer(reporter, gate.circuit))
