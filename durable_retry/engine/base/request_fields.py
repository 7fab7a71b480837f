"""Paths and headers that a caller may set in a request to a dependency.

A path must stay below the configured base URL. A header must not concern the connection, carry credentials or
replace what the app writes itself.
"""

import re
from typing import Annotated, Final
from urllib.parse import unquote

from pydantic import Field

from durable_retry.engine.base.validation import Matching, checked

MAX_SECONDS: Final = 31_536_000.0


type Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS)]
type RelativePath = Annotated[str, checked(path_problem)]
type HeaderName = Annotated[str, checked(header_name_problem)]
type HeaderValue = Annotated[str, checked(header_value_problem)]
type ResourceName = Annotated[
    str,
    Matching(
        r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}",
        "must be 1 to 128 letters, digits, _, . or -, and not begin with . or -",
    ),
]
type Key = Annotated[str, Matching(r"[\x21-\x7e]{1,255}", "must be 1 to 255 visible ASCII characters")]
type Label = Annotated[
    str,
    # Without spaces at the ends: a correlation id is sent as a header, and HTTP strips or refuses them there.
    Matching(
        r"[^\x00-\x20\x7f]([^\x00-\x1f\x7f]{0,253}[^\x00-\x20\x7f])?",
        "must be 1 to 255 characters, with no control character and no space at an end",
    ),
]
type QueueName = Annotated[
    str,
    Matching(
        r"(?=.{3,63}$)[a-z0-9]+(-[a-z0-9]+)*",
        "must be a storage queue's name: 3 to 63 lower-case letters, digits and single inner hyphens",
    ),
]

MAX_PATH_CHARS: Final = 2_048
MAX_HEADER_VALUE_CHARS: Final = 4_096

_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")

_CREDENTIALS: Final = frozenset({"authorization", "proxy-authorization", "proxy-authenticate", "cookie"})
_REFUSED: Final = {
    **dict.fromkeys(
        (
            "connection",
            "keep-alive",
            "proxy-connection",
            "te",
            "trailer",
            "transfer-encoding",
            "upgrade",
        ),
        "speaks for one connection only (RFC 9110 section 7.6.1)",
    ),
    **dict.fromkeys(("host", "content-length", "expect"), "is written by the app itself"),
    **dict.fromkeys(_CREDENTIALS, "carries credentials, which come from dependencies.toml only"),
}


def path_problem(path: str) -> str | None:
    """Return what is wrong with a path relative to a base URL; None when nothing is.

    The path is checked as written, and again after each round of percent-decoding until nothing changes: a
    server behind the first one may decode it once more.
    """
    if len(path) > MAX_PATH_CHARS:
        return f"is longer than {MAX_PATH_CHARS} characters"
    for form in _decodings(path):
        if (found := _form_problem(form)) is not None:
            return found
    if path != path.strip():
        return "must not begin or end with white space"
    if "?" in path or "#" in path:
        return "holds ? or #: put the query into `query`, and leave fragments out"
    return None


def _decodings(path: str) -> list[str]:
    """List a path and its repeated decodings; each is shorter than the one before, so the list ends."""
    forms = [path]
    while (decoded := unquote(forms[-1])) != forms[-1]:
        forms.append(decoded)
    return forms


def _form_problem(path: str) -> str | None:
    if _CONTROL.search(path):
        return "holds control characters"
    if "\\" in path:
        return "holds a backslash, which some servers read as /"
    if path.startswith("//") or _SCHEME.match(path):
        return "must be relative to the dependency's base_url: no scheme, no host"
    # Some servers drop what follows a semicolon, so `..;v=1` climbs like `..`.
    if any(segment.split(";")[0] in {".", ".."} for segment in re.split(r"[/?#]", path)):
        return "must not hold . or .. segments, also not percent-encoded"
    return None


def header_name_problem(name: str) -> str | None:
    """Return why a caller may not set a header of this name; None when they may."""
    if not _TOKEN.fullmatch(name):
        return "is not a header name (RFC 9110 section 5.1), or is longer than 128 characters"
    reason = _REFUSED.get(name.lower())
    return None if reason is None else f"may not be set: it {reason}"


def config_header_problem(name: str) -> str | None:
    """Like `header_name_problem`, for dependencies.toml, where credentials are allowed."""
    allowed = name.lower() in _CREDENTIALS
    return None if allowed else header_name_problem(name)


def header_value_problem(value: str) -> str | None:
    """Return what is wrong with a header's value; None when nothing is."""
    if len(value) > MAX_HEADER_VALUE_CHARS:
        return f"is longer than {MAX_HEADER_VALUE_CHARS} characters"
    if not value.isascii() or _CONTROL.search(value.replace("\t", " ")):
        return "may hold visible ASCII characters, spaces and tabs only"
    if value != value.strip():
        return "must not begin or end with white space"
    return None
