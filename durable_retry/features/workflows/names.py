"""Names of durable functions that histories see: never rename one."""

from typing import Final

BATCH: Final = "batch"
SAGA: Final = "saga"
"""Orchestrators."""

SUBMIT: Final = "submit"
BATCH_STEP: Final = "batch_step"
BATCH_CLOSE: Final = "batch_close"
BEGIN_RESTART: Final = "begin_restart"
END_RESTART: Final = "end_restart"
"""Activities."""
