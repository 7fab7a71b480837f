"""What an operation is to do, as people see it: its request, or its handler and input.

Credentials in the headers of a caller's request are sent, and neither shown nor stored with a dead letter:
they are masked here. `engine.base.validation` refuses the standard credential headers; those masked are the
ones that services invented.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from durable_retry.engine.base.text import MASK
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


def content_of(operation: Mapping[str, Any]) -> dict[str, Any]:
    """Return `request`, or `handler` and `input`, of an operation's JSON form; credentials are masked."""
    if operation["handler"] is not None:
        return {"handler": operation["handler"], "input": operation["input"]}
    return {"request": without_credentials(operation)["request"]}


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
