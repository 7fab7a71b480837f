"""Every route of the API with every answer it gives: the one table that `openapi.json` is made from.

A test holds it to the functions that `function_app` registers, and a fuzzer to the answers that they give.
"""

from typing import Final

from triggers.openapi.dead_letter_routes import DEAD_LETTERS
from triggers.openapi.dependency_routes import DEPENDENCIES, THE_APP
from triggers.openapi.operation_routes import OPERATIONS
from triggers.openapi.outbox_routes import OUTBOX
from triggers.openapi.parts import Route

ROUTES: Final[tuple[Route, ...]] = (*OPERATIONS, *DEPENDENCIES, *DEAD_LETTERS, *OUTBOX, *THE_APP)
