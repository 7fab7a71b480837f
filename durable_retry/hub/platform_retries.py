"""The platform's own retries: a blueprint that can declare them, and how its functions read them.

The host counts in the memory of one instance: when that dies the count begins anew, and so does the delivery.
Source: "Azure Functions error handling and retries", Microsoft Learn.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import azure.durable_functions as df
import azure.functions as func
from azure.core.exceptions import AzureError

from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.hub.binding import TaskHub, bind_hub
from durable_retry.rules.retry.policy import MARGIN_SECONDS
from durable_retry.runtime.concurrency import time_limit
from durable_retry.settings.configuration import function_timeout_seconds

TIMER_INTERVAL: Final = "00:00:15"
UPKEEP_RETRIES: Final = 2

_log = logging.getLogger(__name__)


class _CutOffError(Exception):
    """The time of a timer's run is up."""


def _run_limit_seconds() -> float | None:
    # At `functionTimeout` the host ends the worker, and with it every attempt that it makes at that moment.
    seconds = function_timeout_seconds()
    return None if seconds is None else max(seconds - MARGIN_SECONDS, seconds / 2)


class RetriedBlueprint(df.Blueprint, func.SettingsApi):
    """A blueprint with the decorator `retry`, which `df.Blueprint` lacks."""

    def retry_evenly(self, function: Any, max_retries: int) -> Any:
        """Let the host repeat a failed timer after even pauses.

        Args:
            max_retries: After the first run; -1 for ever.
        """
        return self.retry(
            strategy="fixed_delay", max_retry_count=str(max_retries), delay_interval=TIMER_INTERVAL
        )(function)

    def upkeep_timer(self, schedule: str) -> Callable[[Callable[[TaskHub], Awaitable[None]]], Any]:
        """Return the decorator of a timer that tidies up; what it decorates gets the task hub.

        A run is ended before `functionTimeout`. That, and an error of storage or of the task hub, is one line
        in the log: the next run of the timer does what is left. Any other error is retried `UPKEEP_RETRIES`
        times.
        """

        def register(upkeep: Callable[[TaskHub], Awaitable[None]]) -> Any:
            async def run(
                timer: func.TimerRequest,  # noqa: ARG001 - the trigger's own
                context: func.Context,
                hub: TaskHub,
            ) -> None:
                note_retry(context)
                name = context.function_name
                try:
                    async with time_limit(_run_limit_seconds(), _CutOffError):
                        await upkeep(hub)
                except _CutOffError:
                    _log.warning("%s: its time is up; the next run goes on", name)
                except (TaskHubUnavailableError, AzureError) as error:
                    first_line = str(error).partition("\n")[0]
                    _log.warning("%s: %s: %s; the next run goes on", name, type(error).__name__, first_line)

            run.__name__, run.__doc__ = upkeep.__name__, upkeep.__doc__
            timed = self.timer_trigger(arg_name="timer", schedule=schedule)(bind_hub(self)(run))
            return self.retry_evenly(timed, UPKEEP_RETRIES)

        return register


def note_retry(context: func.Context) -> None:
    """Log which run this is, and what the one before failed with."""
    retry = context.retry_context
    if retry is None or not retry.retry_count:
        return
    # The SDK's interface calls it `exception`, the runtime that fills it in `rpc_exception`.
    error = getattr(retry, "rpc_exception", None) or getattr(retry, "exception", None)
    _log.warning(
        "%s: retry %s of %s%s, after: %s",
        context.function_name,
        retry.retry_count,
        "any number" if retry.max_retry_count < 0 else retry.max_retry_count,
        ", the last one" if is_last_run(context) else "",
        getattr(error, "message", "an unknown error"),
    )


def is_last_run(context: func.Context) -> bool:
    """Return whether the host will not run this again: the source then moves on, whatever happened."""
    retry = context.retry_context
    return retry is not None and 0 < retry.max_retry_count <= retry.retry_count
