"""Client of the HTTP API, and the environment variables that say where it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote

from retryctl.errors import ApiError, UnreachableError, UsageError

if TYPE_CHECKING:
    import httpx

_FUNCTION_KEY_HEADER: Final = "x-functions-key"
_TIMEOUT_SECONDS: Final = 60.0
"""More than the 30 s that `Prefer: wait` can take."""
_PAGE_ITEMS: Final = 200
"""The API's largest `limit`."""
MOST_PAGES: Final = 10
"""The most requests of one search. A page covers a bounded number of items, and may have no match."""


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable of the command line; an empty one counts as not set.

    Attributes:
        name: Name in the environment.
        meaning: One sentence for a person.
        default: Value when it is not set; "" for none.
    """

    name: str
    meaning: str
    default: str = ""

    def get(self, environ: Mapping[str, str]) -> str:
        """Return the value, or the default."""
        return environ.get(self.name) or self.default


URL: Final = Variable(
    "DURABLE_RETRY_URL",
    "URL of the app, or of its API where a route prefix was chosen; `--url` wins.",
    "http://localhost:7071",
)
KEY: Final = Variable("DURABLE_RETRY_KEY", "Function key, if the app needs one; `--function-key` wins.")

NO_COLOR: Final = Variable("NO_COLOR", "Set to anything: nothing is coloured (no-color.org).")
TERM: Final = Variable("TERM", "Kind of terminal; `dumb` has no colours.")
COLUMNS: Final = Variable("COLUMNS", "Width that tables fit, in place of the terminal's own.")

VARIABLES: Final = (URL, KEY, NO_COLOR, TERM, COLUMNS)


class Api:
    """Client of the API at one base URL."""

    def __init__(
        self, url: str, function_key: str | None, transport: httpx.BaseTransport | None = None
    ) -> None:
        import ssl  # noqa: PLC0415 - httpx loads it

        import httpx  # noqa: PLC0415 - the slowest import; `--help` and `--version` do not need it

        # Without TLS nothing is verified: do not load the trusted certificates.
        tls = url.startswith("https:") or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

        self.url = url.rstrip("/")
        has_path = "/" in self.url.partition("://")[2]
        headers = {} if function_key is None else {_FUNCTION_KEY_HEADER: function_key}
        self._client = httpx.Client(
            base_url=f"{self.url}/" if has_path else f"{self.url}/api/",
            headers=headers,
            timeout=_TIMEOUT_SECONDS,
            transport=transport,
            verify=tls,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, *path: str, **query: Any) -> Any:
        """Return a document. Parameters that are None are left out of the query.

        Raises:
            ApiError: The answer is a problem.
            UnreachableError: There is no answer, or it is 503.
        """
        return self.call("GET", *path, query=query)

    def post(self, *path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """Post a JSON body and return the answer's document; errors as in `get`."""
        return self.call("POST", *path, body=body, headers=headers)

    def call(
        self,
        method: str,
        *path: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send one request and return the answer's document; errors as in `get`.

        Args:
            method: HTTP method.
            path: Segments below `/api`, not yet percent-encoded.
            query: Parameters; those that are None are left out.
            body: JSON; None sends no body.
            headers: In addition to the function key.
        """
        given = {name: value for name, value in (query or {}).items() if value is not None}
        return _document(self._send(method, path, params=given, json=body, headers=headers), self.url)

    def unknown_dependency(self, name: str) -> str:
        """Say that no dependency has this name, and which comes near; "" where one has it."""
        known = [each["name"] for each in self.get("dependencies")["items"]]
        if name in known:
            return ""
        near = get_close_matches(name, known, n=1)
        guess = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        return f"no dependency has the name {name}; {guess}"

    def health(self) -> Any:
        """Return the health document, which the API sends with status 200 or 503.

        Raises:
            UnreachableError: There is no answer, or it is no health document.
        """
        answer = self._send("GET", ("health",))
        document = _problem(answer)
        if "parts" not in document:
            raise UnreachableError(f"{self.url} has no health document: {document.get('detail')}")
        return document

    def host_status(self, master_key: str | None) -> Any:
        """Return what the Functions host says of itself; None when it asks for another key.

        Args:
            master_key: Opens `/admin`; None tries the function key, which Core Tools and onebox take.

        Raises:
            UnreachableError: There is no answer.
        """
        import httpx  # noqa: PLC0415 - as above

        headers = {} if master_key is None else {_FUNCTION_KEY_HEADER: master_key}
        root = httpx.URL(self._client.base_url).copy_with(path="/admin/host/status")
        answer = self._request("GET", str(root), headers=headers)
        return (
            answer.json() if answer.is_success and "json" in answer.headers.get("content-type", "") else None
        )

    def pages(self, *path: str, limit: int | None, most_pages: int | None = None, **query: Any) -> Any:
        """Return a list document with the items of as many pages as the limit needs.

        Args:
            path: Segments of the list's path.
            limit: Most items; None for all.
            most_pages: Most requests, since a page of a search may be empty; None for as many as it takes.
            query: Filters.
        """
        items: list[Any] = []
        cursor = None
        for number, document in enumerate(self._each_page(path, query, limit), start=1):
            items.extend(document["items"])
            cursor = document["next_cursor"]
            if (limit is not None and len(items) >= limit) or number == most_pages:
                break
        return {"items": items, "next_cursor": cursor}

    def _send(self, method: str, path: tuple[str, ...], **request: Any) -> httpx.Response:
        return self._request(method, "/".join(quote(segment, safe="") for segment in path), **request)

    def _request(self, method: str, route: str, **request: Any) -> httpx.Response:
        import httpx  # noqa: PLC0415 - as above

        try:
            return self._client.request(method, route, **request)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise UsageError(f"{self.url} is not the URL of an app: {error}") from None
        except httpx.TransportError as error:
            hint = f"is the app running there? Set --url or {URL.name}"
            raise UnreachableError(f"{self.url} does not answer ({error}); {hint}") from None

    def _each_page(
        self, path: tuple[str, ...], query: Mapping[str, Any], limit: int | None
    ) -> Iterator[dict[str, Any]]:
        left, cursor = limit, None
        while True:
            size = _PAGE_ITEMS if left is None else min(left, _PAGE_ITEMS)
            document = self.get(*path, **query, limit=size, cursor=cursor)
            yield document
            cursor = document["next_cursor"]
            if cursor is None:
                return
            if left is not None:
                left -= len(document["items"])


def _document(answer: httpx.Response, url: str) -> Any:
    if answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE:
        raise UnreachableError(f"{url} accepts nothing for now: {_problem(answer).get('detail')}")
    if answer.status_code == HTTPStatus.UNAUTHORIZED:
        detail = f"the function key is missing or wrong: set --function-key or {KEY.name}"
        raise ApiError({"status": answer.status_code, "title": "Unauthorized", "detail": detail})
    if not answer.is_success:
        raise ApiError(_problem(answer))
    try:
        return answer.json()
    except ValueError:
        raise ApiError(_foreign_problem(answer)) from None


def _problem(answer: httpx.Response) -> dict[str, Any]:
    try:
        document = answer.json()
    except ValueError:
        return _foreign_problem(answer)
    return document if isinstance(document, dict) else _foreign_problem(answer)


def _foreign_problem(answer: httpx.Response) -> dict[str, Any]:
    """Make a problem of an answer that does not come from the API, such as a proxy's page."""
    detail = "this is not an answer of Durable Retry; is the URL right?"
    return {"status": answer.status_code, "title": answer.reason_phrase, "detail": detail}
