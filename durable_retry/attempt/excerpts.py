"""What is kept of answers and of errors: no credential of the dependency's, and not more than fits.

A credential is taken out before anything is cut. The rest of one that was cut in reading is taken out, too.
"""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from durable_retry.attempt.bodies import body_text, message_in
from durable_retry.attempt.http_client import BoundedResponse, SignInError
from durable_retry.base.credentials import Credentials
from durable_retry.base.documents import read_answer
from durable_retry.base.foreign import name_of, text_of
from durable_retry.base.text import DATA_PREFIX, Secret
from durable_retry.base.validation import InvalidInputError
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.operations.completion import MASKED, VALUES, values_at

ERROR_CHARS: Final = 300
"""Characters of an error's line in a status document."""


@dataclass(frozen=True, slots=True)
class _CacheEntry:
    """The credentials of one dependency; another object of the same name is another configuration."""

    made_for: Dependency
    credentials: Credentials


_cache: Final[dict[str, _CacheEntry]] = {}


def credentials_of(dependency: Dependency) -> Credentials:
    """Return what authenticates the app at a dependency, and the headers that are secret."""
    # Made once: every attempt uses them several times.
    cached = _cache.get(dependency.name)
    if cached is None or cached.made_for is not dependency:
        hide_tokens(dependency, ())
    return _cache[dependency.name].credentials


def hide_tokens(dependency: Dependency, tokens: Iterable[Secret]) -> None:
    """Make `credentials_of` a dependency anew: what is configured, and the tokens that it is sent."""
    secrets = [value for value in dependency.headers.values() if isinstance(value, Secret)]
    secrets += [*dependency.webhook.secrets, *tokens]
    if dependency.auth is not None and dependency.auth.value is not None:
        secrets.append(dependency.auth.value)
    _cache[dependency.name] = _CacheEntry(dependency, Credentials(secret.reveal() for secret in secrets))


# Only headers that help a person are stored: others may hold cookies and tokens.
_KEPT_HEADERS: Final = frozenset(
    {
        "content-type",
        "content-length",
        "content-language",
        "etag",
        "last-modified",
        "location",
        "operation-location",
        "azure-asyncoperation",
        "retry-after",
        "date",
        "x-request-id",
        "request-id",
        "x-ms-request-id",
        "x-correlation-id",
        "traceparent",
    }
)

_HEADER_CHARS: Final = 1_024
_URL_CHARS: Final = dict.fromkeys(("azure-asyncoperation", "location", "operation-location"), 8_192)
"""A URL that is cut leads elsewhere, and those of Azure's operations have thousands of characters."""

_MOST_PLACES: Final = 20
_MOST_PLACE_CHARS: Final = 200


def kept_result(
    answer: BoundedResponse, dependency: Dependency, limit_bytes: int, pointers: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the `result` of a success: `json` when the whole body is JSON and small enough, else `body`.

    A body that was cut, in reading or here, carries `"truncated": true`. One that is cut here has the wanted
    parts of its JSON in `values`. One that is no text is kept in base64, as a data URL, and a `note` says so;
    another `note` says that the answer's `Content-Encoding` was false. `masked` points at what is not as it
    came, since a credential stood there.

    Args:
        limit_bytes: The most of the body that is kept.
        pointers: JSON pointers into the result as it would be without a limit.
    """
    credentials = credentials_of(dependency)
    head = _head_of(answer)
    is_cut = answer.is_cut or len(answer.body) > limit_bytes
    document = _json_of(answer, credentials) if pointers or not is_cut else {}
    if not is_cut and (document or not answer.body):
        return _with_head(document, head, credentials)
    result = _with_head(_body_of(answer, credentials, limit_bytes), head, credentials)
    if not document or answer.is_cut:
        return result
    return result | {VALUES: values_at(_with_head(document, head, credentials), pointers)}


def _head_of(answer: BoundedResponse) -> dict[str, Any]:
    headers = {name: value for name, value in answer.headers.items() if name in _KEPT_HEADERS}
    head: dict[str, Any] = {"status_code": answer.status_code, "headers": headers}
    if answer.is_undecoded:
        head["note"] = "the answer's Content-Encoding is false: the body is what could be decoded"
    return head


def _with_head(
    content: Mapping[str, Any], head: Mapping[str, Any], credentials: Credentials
) -> dict[str, Any]:
    """Return a result of a body without credentials, with the places where they stood."""
    masked, places = credentials.without(head)
    headers = {
        name: value[: _URL_CHARS.get(name, _HEADER_CHARS)] for name, value in masked["headers"].items()
    }
    places = bounded([*content.get(MASKED, ()), *places])
    return {**content, **masked, "headers": headers} | ({MASKED: places} if places else {})


def bounded(places: list[str]) -> list[str]:
    """Return what `MASKED` lists: places, or the whole result where they are many or long."""
    is_short = len(places) <= _MOST_PLACES and all(len(place) <= _MOST_PLACE_CHARS for place in places)
    return places if is_short else [""]


def _json_of(answer: BoundedResponse, credentials: Credentials) -> dict[str, Any]:
    media_type = answer.content_type.partition(";")[0].strip().lower()
    if not media_type.endswith(("/json", "+json")):
        return {}
    text = body_text(answer.body, answer.content_type) or ""
    try:
        document = read_answer(text)
    except InvalidInputError:
        return {}
    result, places = credentials.without({"json": document}, text)
    return {**result, MASKED: places} if places else {**result}


def _body_of(answer: BoundedResponse, credentials: Credentials, limit_bytes: int) -> dict[str, Any]:
    """Return a body as text, or as bytes, up to the limit; a credential that begins before it is whole."""
    beginning = answer.body[: limit_bytes + credentials.most_chars]
    is_cut = answer.is_cut or len(beginning) < len(answer.body)
    text = body_text(beginning, answer.content_type, is_cut=is_cut)
    if text is None:
        # Credentials are ASCII, and Latin-1 has a character for every byte.
        safe = credentials.masked(beginning.decode("latin-1"), is_cut=is_cut)
        most = limit_bytes // 4 * 3  # what base64 makes of it fits the limit
        content = safe.encode("latin-1", errors="replace")
        body = DATA_PREFIX + base64.b64encode(content[:most]).decode()
        is_whole, is_same = not answer.is_cut and len(content) <= most, content == beginning
        result = {"body": body, "note": "the body is no text in UTF-8 or the declared charset"}
    else:
        safe = credentials.masked(text, is_cut=is_cut)
        body = safe.encode(errors="replace")[:limit_bytes].decode(errors="ignore")
        is_whole, is_same = not answer.is_cut and len(answer.body) <= limit_bytes, safe == text
        result = {"body": body}
    more = {} if is_whole else {"truncated": True}
    return result | more | ({} if is_same else {MASKED: ["/body"]})


def error_line(error: BaseException, dependency: Dependency) -> str:
    """Return an exception's name and message as one line, without secrets; of ours the message alone."""
    message = _one_line(safe_text(text_of(error), dependency))
    if issubclass(type(error), SignInError):
        return message[:ERROR_CHARS]
    line = f"{name_of(error)}: {message}" if message else name_of(error)
    return line[:ERROR_CHARS]


_LINE_CHARS: Final = 200


def _one_line(masked: str) -> str:
    # Only after masking: a header's value ends with its line.
    return " ".join(masked.split())


FAILURE_CHARS: Final = 4_000
"""An attempt's failure travels with the operation until the next attempt."""


def refusal_texts(body: str, dependency: Dependency) -> tuple[str, str | None]:
    """Return the line of a refusal's message, and its body's beginning; None if the line says as much."""
    message, masked = message_in(body), safe_text(body, dependency)
    line = _one_line(masked if message == body else safe_text(message, dependency))[:_LINE_CHARS]
    text = masked.strip()[:FAILURE_CHARS]
    return line, None if text == line else text


def safe_text(text: str, dependency: Dependency) -> str:
    """Return a text, which may be the beginning of one, without credentials and values of secret names."""
    return dependency.masking.text(credentials_of(dependency).masked(text, is_cut=True))
