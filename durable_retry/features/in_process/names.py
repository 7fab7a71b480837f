"""Names that histories see."""

from typing import Final

CALL: Final = "call_operation"
START_CALL: Final = "start_call"
LOOK_AT_CALL: Final = "look_at_call"

CALL_SOURCE: Final = "call"
"""Source of the operations of calls; their keys are unique in the whole app."""

REFUSED: Final = "refused"
"""`OperationFailed.status` of an operation that was never started."""
