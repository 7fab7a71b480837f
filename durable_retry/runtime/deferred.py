"""Modules that are imported when they are first needed, so that a cold start does not wait for them.

A deferred function is named by text, `package.module:name`, so that no import statement hides in a function.
`tests/unit/test_cold_start.py` imports all of it.
"""

from collections.abc import Awaitable, Callable
from functools import cache
from importlib import import_module
from typing import Any, Final

REFERENCES: Final[set[str]] = set()
"""Everything that this app may import later; its settings decide what that is."""


def unimportable() -> str:
    """Import all of `REFERENCES`; return the first that cannot be imported and why, "" when all can."""
    for reference in sorted(REFERENCES):
        try:
            imported(reference)
        except ImportError as error:
            return f"{reference.partition(':')[0]}: {error}"
    return ""


def imported(reference: str) -> Any:
    """Import a module and return what it has: `durable_retry.upkeep.routes:routes`."""
    module, _, name = reference.partition(":")
    return getattr(_module(module), name)


_module: Final = cache(import_module)


@cache
def deferred(reference: str) -> Callable[..., Awaitable[Any]]:
    """Return an async function whose module is imported when it is first called."""
    REFERENCES.add(reference)

    async def call(*args: Any, **kwargs: Any) -> Any:
        return await imported(reference)(*args, **kwargs)

    return call
