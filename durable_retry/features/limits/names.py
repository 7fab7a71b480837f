"""What is seen of the feature outside of its folder."""

from typing import Final

LIMITS: Final = "limits"
"""The feature, and its key of a dependency."""

CALL_NEXT: Final = "call_next"
"""The orchestration that tells those that wait of a free slot."""

LOOK: Final = "look"
"""The signal of the entity `call_limiter` to itself: after a free slot that nobody came for."""

CHANGE: Final = "change"
"""The signal of a worker that has read limits since the attempts that wait have."""
