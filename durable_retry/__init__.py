"""Durable Retry: operations on other services, tried until they succeed, fail for good, or are cancelled.

    app = df.DFApp()
    durable_retry.register(app)

Names of this package are imported when they are first used: the workers that use few of them start sooner.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from durable_retry.app import register
    from durable_retry.features.handlers.registry import operation, wrap
    from durable_retry.features.handlers.values import (
        Call,
        Outcome,
        Rejected,
        TableWrite,
        Throttled,
        Transient,
    )
    from durable_retry.features.in_process.call import call
    from durable_retry.features.in_process.documents import OperationFailed
    from durable_retry.features.in_process.operations import Operations
    from durable_retry.features.outbox.rules.event import Event
    from durable_retry.rules.retry.history import Conflict

__all__ = [
    "Call",
    "Conflict",
    "Event",
    "OperationFailed",
    "Operations",
    "Outcome",
    "Rejected",
    "TableWrite",
    "Throttled",
    "Transient",
    "call",
    "operation",
    "register",
    "wrap",
]

# The module of each name.
_HOMES: Final = {
    "register": "durable_retry.app",
    **dict.fromkeys(("operation", "wrap"), "durable_retry.features.handlers.registry"),
    **dict.fromkeys(
        ("Call", "Outcome", "Rejected", "TableWrite", "Throttled", "Transient"),
        "durable_retry.features.handlers.values",
    ),
    "Conflict": "durable_retry.rules.retry.history",
    "call": "durable_retry.features.in_process.call",
    "OperationFailed": "durable_retry.features.in_process.documents",
    "Operations": "durable_retry.features.in_process.operations",
    "Event": "durable_retry.features.outbox.rules.event",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
