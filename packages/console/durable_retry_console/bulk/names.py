"""Names that histories see: never rename one."""

from typing import Final

BULK_ACTION: Final = "bulk_action"
"""Orchestrator."""

BULK_PAGE: Final = "bulk_page"
BULK_BATCH: Final = "bulk_batch"
BULK_ENDS: Final = "bulk_ends"
"""Activities."""

CANCEL_BULK_EVENT: Final = "cancel_bulk"
"""Event that cancels a bulk action."""

RESUME_BULK_EVENT: Final = "resume_bulk"
"""Event that lets a stopped one go on; its `stopped_at` says after which stop."""
