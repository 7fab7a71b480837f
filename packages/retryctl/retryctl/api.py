"""Client of the HTTP API, and the environment variables that say where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from http import HTTPStatus
from string import Formatter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

from retryctl.errors import ApiError, CommandError, UnreachableError, UsageError

if TYPE_CHECKING:
    import httpx

    from durable_retry_client import Client, RefusedError

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
    """The API at one URL, asked once for each answer.

    Raises:
        UsageError: It is not the URL of an app.
    """

    def __init__(
        self, url: str, function_key: str | None, transport: httpx.BaseTransport | None = None
    ) -> None:
        # The slowest import, which `--help` and `--version` do without.
        import durable_retry_client  # noqa: PLC0415

        self._package = durable_retry_client
        self.url, self._function_key, self._transport = url.rstrip("/"), function_key, transport
        try:
            self._client = self._client_of(self.url, function_key)
        except ValueError as error:
            raise UsageError(str(error)) from None

    def _client_of(self, url: str, function_key: str | None) -> Client:
        return self._package.Client(url, function_key=function_key, tries=1, transport=self._transport)

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
        names = {name: str(rest.pop(name)) for _, name, *_ in Formatter().parse(path) if name}
        parts = [part.format_map(names) for part in path.split("/")]
        content = {"body" if method == "POST" else "query": rest}
        try:
            return self._request(self._client, method, parts, headers=headers, **content)
        except self._package.RefusedError as refused:
            raise _refusal(refused, self.url) from None

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
        try:
            document = self._request(self._client, "GET", "health")
        except self._package.RefusedError as refused:
            document = {}
            with suppress(TypeError, ValueError, RecursionError):
                document = {**refused.answer.json()}
        if "parts" not in document:
            raise UnreachableError(f"{self.url} has no health document: {document.get('detail', FOREIGN)}")
        return document

    def host_status(self, master_key: str | None) -> Any:
        """Return what the Functions host says of itself; None when it asks for another key.

        Args:
            master_key: Opens `/admin`; None tries the function key, which Core Tools and onebox take.

        Raises:
            CommandError: There is no answer, or one of something else.
        """
        admin = urlsplit(self.url)._replace(path="/admin").geturl()
        with self._client_of(admin, master_key or self._function_key) as client:
            try:
                return self._request(client, "GET", "host/status")
            except self._package.RefusedError as refused:
                if refused.status == HTTPStatus.OK:
                    raise _refusal(refused, self.url) from None
                return None

    def _request(self, client: Client, method: str, path: str | Sequence[str], **content: Any) -> Any:
        try:
            document = client.request(method, path, **content)
        except ValueError as error:
            raise UsageError(str(error)) from None
        except self._package.UnreachableError as error:
            hint = f"is the app running there? Set --url or {URL.name}"
            raise UnreachableError(f"{self.url} does not answer ({error.__cause__}); {hint}") from None
        if not isinstance(document, dict):
            raise ApiError(HTTPStatus.OK, f": {FOREIGN}")
        return document


FOREIGN: Final = "this is not an answer of Durable Retry; is the URL right?"
"""Said of an answer that does not come from the API, such as a proxy's page."""


def _refusal(refused: RefusedError, url: str) -> CommandError:
    problem = refused.problem
    detail = FOREIGN if problem is None else problem.detail
    title = (problem and problem.title) or refused.answer.reason_phrase
    if refused.status == HTTPStatus.SERVICE_UNAVAILABLE:
        return UnreachableError(f"{url} accepts nothing for now: {detail}")
    if refused.status == HTTPStatus.UNAUTHORIZED:
        why = "" if problem is None else f" ({detail})"
        detail = f"the function key is missing or wrong{why}: set --function-key or {KEY.name}"
    mistakes = () if problem is None else problem.errors
    lines = (f"  {each.pointer or '(document)'}: {each.detail}" for each in mistakes)
    return ApiError(refused.status, "\n".join([f"{title}: {detail}", *lines]))
