"""Names that histories see: never rename one."""

from typing import Final

POLLING: Final = "polling"
"""The feature."""

POLL: Final = "poll"
"""Activity."""
