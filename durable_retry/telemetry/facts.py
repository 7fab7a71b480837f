"""The port between the core and those who watch it: the core reports each fact once, where it happens.

The core does not import telemetry's receivers or the console; they subscribe when the app is registered. So
an app without the console has the same core, and a new way to end an operation cannot forget an index.
"""

import logging
from collections.abc import Callable
from typing import Any

from durable_retry.rules.facts import Fact

_receivers: dict[type, list[Callable[[Any], None]]] = {}

_log = logging.getLogger(__name__)


def subscribe[F: Fact](kind: type[F], receive: Callable[[F], None]) -> None:
    """Have a function called with each fact of a kind; a second subscription of the same function is ignored.

    Args:
        receive: Must return at once, from any thread, and is not called while an orchestrator replays.
    """
    receivers = _receivers.setdefault(kind, [])
    if receive not in receivers:
        receivers.append(receive)


def report(fact: Fact) -> None:
    """Call every subscriber of a fact; never raises, since its failure must not stop what it watches."""
    for receive in _receivers.get(type(fact), ()):
        try:
            receive(fact)
        except Exception:  # noqa: BLE001 - the operation goes on without the subscriber
            _log.exception("%s could not be recorded", type(fact).__name__)
