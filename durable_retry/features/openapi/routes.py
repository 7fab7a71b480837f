"""HTTP: the OpenAPI document. Making it imports all routes."""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import azure.functions as func

from durable_retry.features.openapi.document import openapi_document
from durable_retry.http.answers import etag_of_text
from durable_retry.http.routes import OK, RouteAnswer, Routes
from durable_retry.plugins import Collection, features
from durable_retry.routing import collections, table
from durable_retry.settings.configuration import api_path, registration

VERSION: Final = "0.1.0"

routes = Routes("the app")


SHIPPED: Final = Path(__file__).with_name("documents")
"""Documents that a build wrote; an app without one that fits makes its own."""


@cache
def described() -> dict[str, Any]:
    """Return the OpenAPI document, made once per process."""
    return openapi_document(table(), VERSION, api_path())


def document_name(listed: Iterable[Collection]) -> str:
    """Return the name of the file that describes collections: all that changes the file changes the name."""
    sources = registration().sources
    parts = (VERSION, api_path(), [*listed], None if sources is None else sorted(sources))
    return f"{sha256(repr(parts).encode()).hexdigest()[:24]}.json"


def documents() -> dict[str, bytes]:
    """Return what a build ships, by the names of files: of the features, and of all that is installed."""
    apps = ([*collections()], [*collections(features())])
    return {
        document_name(listed): _text_of(openapi_document(table(listed), VERSION, api_path()))
        for listed in apps
    }


@routes.get("openapi.json", answers=(RouteAnswer(OK, "OpenAPI 3.1."),), errors=(), anonymous=True)
async def get_openapi() -> func.HttpResponse:
    """This document."""
    content, etag = _document_and_tag()
    return func.HttpResponse(content, headers={"ETag": etag}, mimetype="application/json")


@cache
def _document_and_tag() -> tuple[bytes, str]:
    """Return the document as it is sent, and its entity tag; made once, since the route needs no key."""
    shipped = SHIPPED / document_name(collections())
    content = shipped.read_bytes() if shipped.exists() else _text_of(described())
    return content, etag_of_text(content)


def _text_of(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode()
