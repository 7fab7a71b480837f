"""The API as a whole: every route, and the OpenAPI document. Whoever imports it imports all routes."""

import json
from functools import cache
from typing import Any, Final

import azure.functions as func

from durable_retry.http.answers import etag_of
from durable_retry.http.openapi import openapi_document
from durable_retry.http.routes import OK, Route, RouteAnswer, Routes
from durable_retry.routing import collections, routes_of
from durable_retry.settings.configuration import api_path

VERSION: Final = "0.1.0"

routes = Routes("the app")


def table() -> list[Route]:
    """Return every declared route that this app has."""
    return [route for collection in collections() for route in routes_of(collection)]


@cache
def described() -> dict[str, Any]:
    """Return the OpenAPI document, made once per process."""
    return openapi_document(table(), VERSION, api_path())


@routes.get("openapi.json", answers=(RouteAnswer(OK, "OpenAPI 3.1."),), errors=(), anonymous=True)
async def get_openapi() -> func.HttpResponse:
    """This document."""
    content, etag = _written()
    return func.HttpResponse(content, headers={"ETag": etag}, mimetype="application/json")


@cache
def _written() -> tuple[bytes, str]:
    """Return the document as it is sent, and its entity tag: nobody needs a key to ask for it."""
    content = json.dumps(described()).encode()
    return content, etag_of(described())
