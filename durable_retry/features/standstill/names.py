"""Names that histories see."""

from typing import Final

QUEUE_CHECK: Final = "queue_check"
PASS_QUEUE: Final = "pass_queue"  # noqa: S105 - no password
