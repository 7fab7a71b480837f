"""Names that histories see: never rename one."""

from enum import StrEnum
from typing import Final, Literal

ORDER: Final = "order"
"""The feature, as the parts of operations have it."""

PASS_TURN: Final = "pass_turn"  # noqa: S105 - no password
"""Orchestrator."""

LOOK_AT_LANE: Final = "look_at_lane"
"""Activity."""

ORDER_LANE: Final = "order_lane"
"""Entity."""

JOIN: Final = "join"
TAKE: Final = "take"
LEAVE: Final = "leave"
DROP: Final = "drop"
RELEASE: Final = "release"
"""Its operations."""

TURN_EVENT: Final = "turn"
"""Event that ends the wait in a lane."""


type OrderOnFailureName = Literal["block", "skip"]
"""An `OrderOnFailure` as people write it."""


class OrderOnFailure(StrEnum):
    """What becomes of those behind an operation of their order key that ends as a dead letter."""

    BLOCK = "block"
    """They wait until it is replayed to its end, or archived."""
    SKIP = "skip"
    """They go on."""
