"""Credentials in the headers of a caller's request: they are sent, and never stored for later.

`engine.base.request_fields` refuses the standard credential headers; these are the ones that services
invented.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from durable_retry.engine.base.secret import MASK
from durable_retry.engine.base.validation import Problem, pointer_of

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
    # A handler has no headers.
    if request is None:
        return dict(operation)
    headers = {
        name: MASK if name.lower() in _NAMES else value for name, value in request.get("headers", {}).items()
    }
    return {**operation, "request": {**request, "headers": headers}}


def missing_credentials(request: Mapping[str, Any] | None) -> Iterator[Problem]:
    """List the headers of a stored request whose masked values cannot be sent again."""
    for name, value in ({} if request is None else request.get("headers", {})).items():
        if name.lower() in _NAMES and value == MASK:
            detail = "is a credential and was not kept: give it in an edited request, or leave it out there"
            yield Problem(pointer_of("request", "headers", name), detail)
