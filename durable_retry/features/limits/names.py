"""What is seen of the feature outside of its folder."""

from typing import Final

LIMITS: Final = "limits"
"""The feature, and its key of a dependency."""

CALL_NEXT: Final = "call_next"
"""The orchestration that tells one that waits of a free slot."""
