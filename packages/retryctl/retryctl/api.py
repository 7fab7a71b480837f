"""Client of the HTTP API, and the environment variables that say where it is."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from http import HTTPStatus
from string import Formatter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from urllib.parse import quote

from retryctl.errors import ApiError, UnreachableError, UsageError

if TYPE_CHECKING:
    import httpx

_FUNCTION_KEY_HEADER: Final = "x-functions-key"
_TIMEOUT_SECONDS: Final = 60.0
"""More than the 30 s that `Prefer: wait` can take."""
_PAGE_ITEMS: Final = 200
"""The API's largest `limit`."""
MOST_EMPTY: Final = 10
"""The most pages without a match of one search. A page covers a bounded number of items."""


class Variable(NamedTuple):
    """An environment variable, with its default, "" for none; an empty one counts as not set."""

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

        import httpx  # noqa: PLC0415 - the slowest import, which `--help` and `--version` do without

        self._httpx = httpx
        is_tls = url.lower().startswith("https:")
        # Without TLS nothing is verified: do not load the trusted certificates.
        tls = is_tls or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.url = url.rstrip("/")
        has_path = "/" in self.url.partition("://")[2]
        self._client = httpx.Client(
            base_url=f"{self.url}/" if has_path else f"{self.url}/api/",
            headers={} if function_key is None else {_FUNCTION_KEY_HEADER: function_key},
            timeout=_TIMEOUT_SECONDS,
            transport=transport,
            verify=tls,
            trust_env=is_tls,  # `HTTP_PROXY` would read the function key
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def ask(
        self, route: str, given: Mapping[str, Any] | None = None, *, headers: Mapping[str, str] | None = None
    ) -> Any:
        """Send one request and return the answer's document.

        Args:
            route: Method and path below `/api`, such as `POST circuits/{dependency}/open`.
            given: What is in braces; the rest is the JSON body of a POST, and the query otherwise.
            headers: In addition to the function key.

        Raises:
            ApiError: The answer is a problem.
            UnreachableError: There is no answer, or it is 503.
        """
        method, _, path = route.partition(" ")
        rest = dict(given or {})
        names = [name for _, name, *_ in Formatter().parse(path) if name]
        path = path.format_map({name: quote(str(rest.pop(name)), safe="") for name in names})
        content = {"json" if method == "POST" else "params": rest}
        return _document(self._request(method, path, headers=headers, **content), self.url)

    def pages(self, path: str, given: Mapping[str, Any], limit: int | None) -> Any:
        """Return a list document with the items of as many pages as the limit needs.

        Args:
            path: Of the list, as in `ask`.
            given: What is in braces, and the filters.
            limit: Most items; None for all. With a limit it ends after `MOST_EMPTY` pages without a match.
        """
        items: list[Any] = []
        empty, cursor = 0, dict[str, str]()
        while True:
            size = _PAGE_ITEMS if limit is None else min(limit - len(items), _PAGE_ITEMS)
            page = self.ask(f"GET {path}", {**given, "limit": size, **cursor})
            items += page["items"]
            empty += not page["items"]
            cursor = {"cursor": page["next_cursor"]}
            is_enough = limit is not None and (len(items) >= limit or empty == MOST_EMPTY)
            if page["next_cursor"] is None or is_enough:
                return {"items": items, "next_cursor": page["next_cursor"]}

    def unknown_dependency(self, name: str) -> str:
        """Say that no dependency has this name, and which comes near; "" where one has it."""
        known = [each["name"] for each in self.ask("GET dependencies")["items"]]
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
        answer = self._request("GET", "health")
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
        headers = {} if master_key is None else {_FUNCTION_KEY_HEADER: master_key}
        url = self._client.base_url.copy_with(path="/admin/host/status")
        answer = self._request("GET", str(url), headers=headers)
        is_document = answer.is_success and "json" in answer.headers.get("content-type", "")
        return answer.json() if is_document else None

    def _request(self, method: str, route: str, **request: Any) -> httpx.Response:
        try:
            return self._client.request(method, route, **request)
        except (self._httpx.InvalidURL, self._httpx.UnsupportedProtocol) as error:
            raise UsageError(f"{self.url} is not the URL of an app: {error}") from None
        except self._httpx.TransportError as error:
            hint = f"is the app running there? Set --url or {URL.name}"
            raise UnreachableError(f"{self.url} does not answer ({error}); {hint}") from None


def _document(answer: httpx.Response, url: str) -> Any:
    if answer.status_code == HTTPStatus.UNAUTHORIZED:
        refusal = "" if (document := _problem(answer)) is _FOREIGN else f" ({document.get('detail')})"
        detail = f"the function key is missing or wrong{refusal}: set --function-key or {KEY.name}"
        raise ApiError({"status": answer.status_code, "title": "Unauthorized", "detail": detail})
    document = _problem(answer)
    if answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE:
        raise UnreachableError(f"{url} accepts nothing for now: {document.get('detail')}")
    if not answer.is_success or document is _FOREIGN:
        raise ApiError({"title": answer.reason_phrase, **document, "status": answer.status_code})
    return document


_FOREIGN: Final = {"detail": "this is not an answer of Durable Retry; is the URL right?"}
"""In place of an answer that does not come from the API, such as a proxy's page."""


def _problem(answer: httpx.Response) -> dict[str, Any]:
    try:
        document = answer.json()
    except ValueError:
        return _FOREIGN
    return document if isinstance(document, dict) else _FOREIGN
