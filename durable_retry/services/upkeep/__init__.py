"""Upkeep: what repairs, completes and removes while nobody watches, and steps that the console adds to it.

Those run by the timers of upkeep: timers of their own would cost more.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

from durable_retry.stores.task_hub import TaskHub

type UpkeepChore = Callable[[TaskHub, datetime], Awaitable[object]]
"""Takes the configuration of the durable client and the present; bounded, and the next run does the rest."""

EACH_MINUTE: Final[list[UpkeepChore]] = []
"""Run by the timer `watch`, after it has followed up what failed, and also when that fails."""

EACH_ROUND: Final[list[UpkeepChore]] = []
"""Run by the timer `maintenance`."""
