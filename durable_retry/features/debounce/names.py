"""Names that histories see: never rename one."""

from typing import Final

DEBOUNCE: Final = "debounce"
"""Entity."""

ARRIVE: Final = "arrive"
BEGIN: Final = "begin"
WITHDRAW: Final = "withdraw"
"""Its operations, with `FORGET`."""

REPLACED_EVENT: Final = "replaced"
"""Event that an operation with a debounce key sends to the one that it replaces."""
