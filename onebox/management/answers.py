"""Answers that more than one call of the management API gives."""

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from onebox.durable_urls import DurableUrls

CONTINUATION_HEADER = "x-ms-continuation-token"
_RETRY_AFTER_START_SECONDS = 10


class BadRequestError(Exception):
    """The request cannot be understood; the message goes to the caller."""


def problem(status: int, message: str) -> Response:
    """Return an error in the extension's shape."""
    return JSONResponse({"Message": message}, status_code=status)


def check_status(request: Request, urls: DurableUrls, instance_id: str) -> Response:
    """Return the 202 that leads the caller to the instance, on the origin that the caller used."""
    origin = f"{request.url.scheme}://{request.url.netloc}"
    links = DurableUrls(origin, urls.hub_name, urls.code).management(instance_id)
    headers = {"Location": links["statusQueryGetUri"], "Retry-After": str(_RETRY_AFTER_START_SECONDS)}
    return JSONResponse(dict(links), status_code=202, headers=headers)


def page(items: list[Any], token: str | None) -> Response:
    """Return a list; the header asks for what follows and is absent on the last page."""
    return JSONResponse(items, headers={} if token is None else {CONTINUATION_HEADER: token})


def flag(request: Request, name: str, *, default: bool) -> bool:
    """Read a boolean parameter; anything but true and false counts as absent."""
    return {"true": True, "false": False}.get(_parameter(request, name).lower(), default)


def number(request: Request, name: str) -> int | None:
    """Read a whole number; None when it is absent or none."""
    text = _parameter(request, name)
    return int(text) if text.isascii() and text.isdigit() else None


def seconds(request: Request, name: str) -> float | None:
    """Read a number of seconds; None when it is absent or none."""
    try:
        return float(_parameter(request, name))
    except ValueError:
        return None


def _parameter(request: Request, name: str) -> str:
    wanted = name.lower()
    return next((value for key, value in request.query_params.items() if key.lower() == wanted), "")


async def json_body(request: Request) -> str | None:
    """Return the body as JSON text; None when there is none.

    Raises:
        BadRequestError: It is not JSON.
    """
    body = await request.body()
    if not body:
        return None
    try:
        json.loads(body)
    except ValueError:
        raise BadRequestError("Invalid JSON content") from None
    return body.decode()
