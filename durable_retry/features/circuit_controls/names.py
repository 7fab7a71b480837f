"""Names that histories see: never rename one."""

from typing import Final

RELEASE_WAITING: Final = "release_waiting"
"""Orchestrator."""

WAKE_WAITING: Final = "wake_waiting"
"""Activity."""
