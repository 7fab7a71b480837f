"""HTTP: the dashboard, a page that reads the API like any other client."""

from functools import cache
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import azure.functions as func

from durable_retry.http.answers import is_known, required
from durable_retry.http.routes import MISSING, OK, RouteAnswer, Routes, header

routes = Routes("the app")

FOLDER: Final = Path(__file__).parent / "page"
PAGE: Final = "index.html"

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # revalidated each time, which the ETag makes cheap
}


class StaticFile(NamedTuple):
    """One file as it is served."""

    content: bytes
    content_type: str
    etag: str  # quoted, derived from the content


@cache
def static_files(folder: Path) -> dict[str, StaticFile]:
    """Return every file that may be served, by its path below the folder.

    A request is looked up in here and its path never reaches the file system: `..` leads nowhere.
    """
    return {
        path.relative_to(folder).as_posix(): StaticFile(
            content := path.read_bytes(), _TYPES[path.suffix], f'"{sha256(content).hexdigest()[:24]}"'
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix in _TYPES
    }


_UNCHANGED: Final = RouteAnswer(HTTPStatus.NOT_MODIFIED, "The version that was named.", media_type="")


@routes.get(
    "dashboard",
    answers=(RouteAnswer(OK, "The page.", media_type="text/html"), _UNCHANGED),
    errors=(),
    anonymous=True,
)
async def get_dashboard(req: func.HttpRequest) -> func.HttpResponse:
    """The dashboard, a page that reads this API."""
    return _page_answer(req)


@routes.get(
    "dashboard/{*path}",
    answers=(
        RouteAnswer(OK, "The file.", media_type="*/*"),
        _UNCHANGED,
        RouteAnswer(HTTPStatus.PERMANENT_REDIRECT, "To the page.", headers=("Location",), media_type=""),
    ),
    errors=(MISSING,),
    anonymous=True,
)
async def get_dashboard_file(req: func.HttpRequest, path: str | None) -> func.HttpResponse:
    """A file of the dashboard."""
    return _file_answer(req, path) if path else _page_answer(req)


def _page_answer(request: func.HttpRequest) -> func.HttpResponse:
    # The page names its files relative to the address without a slash at the end.
    if urlsplit(request.url).path.endswith("/"):
        return func.HttpResponse(
            status_code=HTTPStatus.PERMANENT_REDIRECT, headers={"Location": "../dashboard"}
        )
    return _file_answer(request, PAGE)


def _file_answer(request: func.HttpRequest, path: str) -> func.HttpResponse:
    found = required(static_files(FOLDER).get(path), "file of this name")
    headers = _HEADERS | {"ETag": found.etag}
    if is_known(header(request, "If-None-Match"), found.etag):
        return func.HttpResponse(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return func.HttpResponse(found.content, headers=headers | {"Content-Type": found.content_type})
