"""What a caller may put into a request that is sent in the dependency's name: paths and headers.

A path must stay below the configured base URL, and a header must not speak for the connection or for the app.
"""

import re
from typing import Final
from urllib.parse import unquote

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
    """Tell what is wrong with a path relative to a base URL; None when nothing is.

    It is looked at as written and with percent-encoding undone until nothing changes, because a server behind
    the first may decode once more.
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
    """List a path and every form that decoding it again leads to; each is shorter than the one before."""
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
    if any(segment.split(";")[0] in {".", ".."} for segment in re.split(r"[/?#]", path)):
        return "must not hold . or .. segments, also not percent-encoded"
    return None


def header_name_problem(name: str) -> str | None:
    """Tell what is wrong with a header's name, or why a caller may not set it; None when nothing is."""
    if not _TOKEN.fullmatch(name):
        return "is not a header name (RFC 9110 section 5.1), or is longer than 128 characters"
    reason = _REFUSED.get(name.lower())
    return None if reason is None else f"may not be set: it {reason}"


def config_header_problem(name: str) -> str | None:
    """As `header_name_problem`, for dependencies.toml, which may carry credentials."""
    allowed = name.lower() in _CREDENTIALS
    return None if allowed else header_name_problem(name)


def header_value_problem(value: str) -> str | None:
    """Tell what is wrong with a header's value; None when nothing is."""
    if len(value) > MAX_HEADER_VALUE_CHARS:
        return f"is longer than {MAX_HEADER_VALUE_CHARS} characters"
    if not value.isascii() or _CONTROL.search(value.replace("\t", " ")):
        return "may hold visible ASCII characters, spaces and tabs only"
    if value != value.strip():
        return "must not begin or end with white space"
    return None
