"""Names that histories see: never rename one."""

from typing import Final

LOOKUP: Final = "lookup"
"""The feature, as a part of an operation."""

LOOK_UP: Final = "look_up"
