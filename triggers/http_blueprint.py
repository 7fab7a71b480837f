"""A blueprint whose HTTP functions say which part is away when they cannot answer without it.

    task hub away   503, `/problems/task-hub-unavailable`
    storage away    503, `/problems/storage-unavailable`

The one place where routes turn an outage of our own into an answer.
"""

import inspect
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import azure.durable_functions as df
import azure.functions as func
from azure.core.exceptions import AzureError, HttpResponseError

from stores.tables import REFUSED_STATUSES
from stores.task_hub import TaskHubUnavailableError
from triggers.problems import storage_away, task_hub_away

type Answering = Callable[..., Awaitable[func.HttpResponse]]


class HttpBlueprint(df.Blueprint):
    """A blueprint with routes that answer 503 while the task hub or the storage account is away."""

    def route(self, *args: Any, **settings: Any) -> Callable[..., Any]:
        """Register an HTTP function; the arguments are those of `df.Blueprint.route`."""
        register = super().route(*args, **settings)

        def registered(function: Any) -> Any:
            builder = register(function)
            # The SDK's own decorators put a function in place of another in this way; there is no public one.
            inner = builder._function  # noqa: SLF001 - see above
            if inspect.iscoroutinefunction(inner._func):  # noqa: SLF001 - any other waits for no part
                inner._func = answering(inner._func)  # noqa: SLF001 - see above
            return builder

        return registered


def answering(function: Answering) -> Answering:
    """Return an HTTP function that answers 503 where another would fail for a part that is away."""

    @wraps(function)
    async def answered(*args: Any, **given: Any) -> func.HttpResponse:
        try:
            return await function(*args, **given)
        except TaskHubUnavailableError as error:
            return task_hub_away(str(error))
        except AzureError as error:
            if _is_refusal(error):
                raise  # The storage works and says that we are wrong, which waiting does not change.
            return storage_away(type(error).__name__)

    return answered


def _is_refusal(error: AzureError) -> bool:
    return isinstance(error, HttpResponseError) and error.status_code in REFUSED_STATUSES
