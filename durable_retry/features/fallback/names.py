"""Names that histories see: never rename one."""

from typing import Final

FALLBACK: Final = "fallback"
"""The feature, as a part of an operation."""

LEAVE_DEPENDENCY: Final = "leave_dependency"
"""Activity."""
