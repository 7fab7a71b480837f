"""Calls of the HTTP API, and what can go wrong with them."""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final, Self
from urllib.parse import quote

import httpx

from retryctl.exit_codes import UNREACHABLE, CommandError, UsageError
from retryctl.tables import printable

_KEY_HEADER: Final = "x-functions-key"
_TIMEOUT_SECONDS: Final = 60.0
"""More than the 30 s that `Prefer: wait` can take."""
_PAGE_ITEMS: Final = 200


class ApiError(CommandError):
    """The API refused what was asked.

    Attributes:
        problem: The problem document, or what stands for one.
    """

    def __init__(self, problem: Mapping[str, Any]) -> None:
        self.problem = problem
        super().__init__(self.text)

    @property
    def text(self) -> str:
        """The problem as lines of text, a line with its pointer for each mistake."""
        status, title, detail = (self.problem.get(name, "") for name in ("status", "title", "detail"))
        lines = [f"{status} {title}: {detail}".rstrip(": ")]
        mistakes = self.problem.get("errors", ())
        lines.extend(f"  {each['pointer'] or '(the whole)'}: {each['detail']}" for each in mistakes)
        return "\n".join(map(printable, lines))


class UnreachableError(CommandError):
    """Nothing can be asked of the API now."""

    exit_code = UNREACHABLE


class Api:
    """The API at one base URL."""

    def __init__(self, url: str, key: str | None, transport: httpx.BaseTransport | None = None) -> None:
        self.url = url.rstrip("/").removesuffix("/api")
        headers = {} if key is None else {_KEY_HEADER: key}
        self._client = httpx.Client(
            base_url=f"{self.url}/api/", headers=headers, timeout=_TIMEOUT_SECONDS, transport=transport
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, *path: str, **query: Any) -> Any:
        """Return a document; what is None in the query is left out.

        Raises:
            ApiError: The API refuses.
            UnreachableError: It does not answer.
        """
        return self.call("GET", *path, query=query)

    def post(self, *path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """Post a body; see `get`."""
        return self.call("POST", *path, body=body, headers=headers)

    def call(
        self,
        method: str,
        *path: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Make a call.

        Args:
            method: Of HTTP.
            path: Segments below `/api`, as they are.
            query: What is None is left out.
            body: JSON; None for no body.
            headers: Beside the key.
        """
        wanted = {name: value for name, value in (query or {}).items() if value is not None}
        return _document(self._answer(method, path, params=wanted, json=body, headers=headers), self.url)

    def health(self) -> Any:
        """Return the health document, which tells of parts that fail with a status of 503.

        Raises:
            UnreachableError: There is no such document.
        """
        answer = self._answer("GET", ("health",))
        document = _problem(answer)
        if "parts" not in document:
            raise UnreachableError(f"{self.url} does not tell its health: {document.get('detail')}")
        return document

    def pages(self, *path: str, limit: int | None, **query: Any) -> Any:
        """Return a list's document with up to `limit` items, gathered from as many pages as it takes.

        Args:
            path: Of the list.
            limit: None for all there are.
            query: Filters.
        """
        items: list[Any] = []
        cursor = None
        for document in self._each_page(path, query, limit):
            items.extend(document["items"])
            cursor = document["next_cursor"]
            if limit is not None and len(items) >= limit:
                break
        return {"items": items, "next_cursor": cursor}

    def _answer(self, method: str, path: tuple[str, ...], **request: Any) -> httpx.Response:
        route = "/".join(quote(segment, safe="") for segment in path)
        try:
            return self._client.request(method, route, **request)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise UsageError(f"{self.url} is no URL of an app: {error}") from None
        except httpx.TransportError as error:
            raise UnreachableError(f"{self.url} does not answer: {error}") from None

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
        raise UnreachableError(f"{url} cannot take anything over now: {_problem(answer).get('detail')}")
    if answer.status_code == HTTPStatus.UNAUTHORIZED:
        told = "the key is missing or wrong: set DURABLE_RETRY_KEY, or give --key"
        raise ApiError({"status": answer.status_code, "title": "Unauthorized", "detail": told})
    if not answer.is_success:
        raise ApiError(_problem(answer))
    try:
        return answer.json()
    except ValueError:
        raise ApiError(_foreign(answer)) from None


def _problem(answer: httpx.Response) -> dict[str, Any]:
    try:
        document = answer.json()
    except ValueError:
        return _foreign(answer)
    return document if isinstance(document, dict) else _foreign(answer)


def _foreign(answer: httpx.Response) -> dict[str, Any]:
    """Describe an answer that is none of the API's own, such as a proxy's."""
    told = "this is no answer of Durable Retry; is the URL right?"
    return {"status": answer.status_code, "title": answer.reason_phrase, "detail": told}
