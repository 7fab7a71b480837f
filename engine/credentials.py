"""Credentials that a caller put into a request's headers: they are sent, and never kept for later.

`engine.outbound` refuses the standard ones outright; these are names that services have made up.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from engine.problem import Problem, pointer_of
from engine.secret import MASK

_NAMES: Final = frozenset(
    {
        "x-api-key",
        "api-key",
        "apikey",
        "x-auth-token",
        "x-access-token",
        "x-functions-key",
        "ocp-apim-subscription-key",
        "x-amz-security-token",
    }
)


def without_credentials(operation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON form of an operation with the values of credential headers masked."""
    request = operation["request"]
    if request is None:
        return dict(operation)
    headers = {
        name: MASK if name.lower() in _NAMES else value for name, value in request.get("headers", {}).items()
    }
    return {**operation, "request": {**request, "headers": headers}}


def missing_credentials(request: Mapping[str, Any] | None) -> Iterator[Problem]:
    """List the headers of a kept request that cannot be sent again as they are."""
    for name, value in ({} if request is None else request.get("headers", {})).items():
        if name.lower() in _NAMES and value == MASK:
            told = "is a credential and was not kept: give it in an edited request, or leave it out there"
            yield Problem(pointer_of("request", "headers", name), told)
