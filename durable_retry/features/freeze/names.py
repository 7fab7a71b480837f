"""Names that histories see: never rename one."""

from typing import Final

FREEZE: Final = "freeze"
"""Orchestrator, and the feature."""

KEEP_FROZEN: Final = "keep_frozen"
COUNT_FROZEN: Final = "count_frozen"
WAKE_FROZEN: Final = "wake_frozen"
"""Activities."""

THAW_EVENT: Final = "thaw"

PREFIX: Final = "release-"
"""Begins the ids of its instances, and of those that wake what waits: upkeep asks once a minute for both."""
