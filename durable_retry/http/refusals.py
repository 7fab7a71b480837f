"""Exceptions as problem documents: what a request is told when the app does not do it."""

from collections.abc import Callable, Mapping
from typing import Any

import azure.functions as func
from azure.core.exceptions import AzureError, HttpResponseError

from durable_retry.engine.base.errors import REFUSED_STATUSES, TaskHubUnavailableError
from durable_retry.engine.base.validation import InvalidInputError
from durable_retry.http.answers import (
    OVERLOADED,
    STORAGE_AWAY,
    TASK_HUB_AWAY,
    ProblemError,
    invalid,
    problem,
    unavailable,
)
from durable_retry.services.sources import OverloadedError

type Refusals = Mapping[type[Exception], Callable[[Any], Exception]]
"""Exceptions of the services, each with the `NotFoundError` or `ConflictError` that it means over HTTP."""


def problem_of(error: Exception, refusals: Refusals) -> func.HttpResponse | None:
    """Return the answer to an exception; None for a defect of the app."""
    means = next((means for kind, means in refusals.items() if isinstance(error, kind)), None)
    match error if means is None else means(error):
        case InvalidInputError() as wrong:
            return invalid(wrong.problems)
        case ProblemError() as refused:
            return problem(refused.status, str(refused), type_=refused.type_)
        case TaskHubUnavailableError() as away:
            detail = f"{away}; nothing was started, send the same request again."
            return unavailable(detail, TASK_HUB_AWAY)
        case OverloadedError() as overload:
            detail = f"{overload}; nothing was started, send the same request again later."
            return unavailable(detail, OVERLOADED)
        case AzureError() as failed if not _is_refusal(failed):
            detail = (
                f"the storage account did not answer ({type(failed).__name__}); send the same request again."
            )
            return unavailable(detail, STORAGE_AWAY)
        case _:
            return None


def _is_refusal(error: AzureError) -> bool:
    # The storage works and refuses the request: waiting changes nothing.
    return isinstance(error, HttpResponseError) and error.status_code in REFUSED_STATUSES
