"""Names that histories see."""

from typing import Final

RETENTION: Final = "retention"
REMOVE_PAST: Final = "remove_past"
