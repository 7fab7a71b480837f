"""A blueprint whose HTTP functions answer for what every one of them may meet.

    input wrong     400, `/problems/invalid-input`, with every mistake
    body too large  413, `/problems/body-too-large`
    task hub away   503, `/problems/task-hub-unavailable`
    storage away    503, `/problems/storage-unavailable`

The one place where routes turn these into answers.
"""

import inspect
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import azure.durable_functions as df
import azure.functions as func
from azure.core.exceptions import AzureError, HttpResponseError

from engine.problem import InvalidInputError
from stores.tables import REFUSED_STATUSES
from stores.task_hub import TaskHubUnavailableError
from triggers.bodies import BodyTooLargeError, too_large
from triggers.problems import invalid, storage_away, task_hub_away

type Answering = Callable[..., Awaitable[func.HttpResponse]]


class HttpBlueprint(df.Blueprint):
    """A blueprint with routes that refuse wrong input, and answer 503 while a part of ours is away."""

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
    """Return an HTTP function that answers with a problem where another would fail."""

    @wraps(function)
    async def answered(*args: Any, **given: Any) -> func.HttpResponse:
        try:
            return await function(*args, **given)
        except InvalidInputError as error:
            return invalid(error.problems)
        except BodyTooLargeError as error:
            return too_large(error)
        except TaskHubUnavailableError as error:
            return task_hub_away(str(error))
        except AzureError as error:
            if _is_refusal(error):
                raise  # The storage works and says that we are wrong, which waiting does not change.
            return storage_away(type(error).__name__)

    return answered


def _is_refusal(error: AzureError) -> bool:
    return isinstance(error, HttpResponseError) and error.status_code in REFUSED_STATUSES
