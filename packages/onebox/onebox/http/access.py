"""Who may call: access keys, and the checks that keep web pages out.

A page in the user's browser can send requests to loopback. Three checks refuse what it could send, before
any handler runs: the Host header (DNS rebinding), the Origin header (cross-site requests), and, for writes
to the host's own endpoints, a JSON content type, which a page of another origin cannot send without a
preflight request. Access keys are required with `--auth` only; without it all levels are open, as with Core
Tools.
"""

import functools
import hmac
import ipaddress
import json
import secrets
import socket
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from onebox import CannotStartError
from onebox.data_folder import write_private
from onebox.http.messages import raw_path

_HEADER = "x-functions-key"
_PARAMETER = "code"
_KEY_BYTES = 32
_KNOWN_HOSTS = 256  # names whose answer is kept: clients use few, and a page may make up any number
_HOST_PATHS = ("/admin/", "/runtime/")


class Level(StrEnum):
    """The authorization levels of the host."""

    ANONYMOUS = "anonymous"
    FUNCTION = "function"
    SYSTEM = "system"
    ADMIN = "admin"


_KEYED = (Level.FUNCTION, Level.SYSTEM, Level.ADMIN)


class Keys:
    """The keys of one data folder: one per level; the master key of level admin opens everything."""

    def __init__(self, values: dict[Level, str] | None) -> None:
        """Hold keys.

        Args:
            values: A key per level but anonymous; None lets everybody in.
        """
        self._values = values

    @classmethod
    def kept_in(cls, path: Path) -> "Keys":
        """Read the keys from a file that only its owner can read; create it when it is missing or empty.

        An empty file is what a crash during creation leaves; no key of it can be in use.

        Raises:
            CannotStartError: The file holds something else than a key per level.
        """
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if not text.strip():
            text = _create(path)
        try:
            content = json.loads(text)
            return cls({level: _key(content[level.value]) for level in _KEYED})
        except (ValueError, TypeError, KeyError):
            names = ", ".join(level.value for level in _KEYED)
            raise CannotStartError(
                f"{path} must be a JSON object with a key for each of {names}; delete it to get new ones"
            ) from None

    @property
    def system(self) -> str | None:
        """The key of the extensions' webhooks; None when everything is open."""
        return None if self._values is None else self._values[Level.SYSTEM]

    def let_in(self, request: Request, level: Level) -> bool:
        """Return whether a request carries a key for this level."""
        if self._values is None or level is Level.ANONYMOUS:
            return True
        given = request.headers.get(_HEADER) or request.query_params.get(_PARAMETER) or ""
        wanted = (self._values[level], self._values[Level.ADMIN])
        # Both are compared in full, whatever the first gives: the time taken reveals nothing.
        matches = [hmac.compare_digest(given.encode(), key.encode()) for key in wanted]
        return any(matches)


def _create(path: Path) -> str:
    text = json.dumps({level.value: secrets.token_urlsafe(_KEY_BYTES) for level in _KEYED}, indent=1)
    write_private(path, text)
    return text


def _key(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError
    return value


@functools.lru_cache(_KNOWN_HOSTS)
def is_loopback(host: str) -> bool:
    """Return whether a host name or address can only mean this machine.

    `*.localhost` counts: browsers and resolvers pin it to loopback (RFC 6761, section 6.3).
    """
    name = _bare(host)
    address = _address(name)
    return address.is_loopback if address is not None else name == "localhost" or name.endswith(".localhost")


class Browsers:
    """Refuses what a web page of another origin could make a browser send.

    Args:
        bound_to: The address or name of `--host`.
        allowed: Further host names to answer to, as with a proxy or a container's name.
    """

    def __init__(self, bound_to: str, allowed: tuple[str, ...] = ()) -> None:
        self._any_address = not is_loopback(bound_to)
        names = (bound_to, *allowed, *([socket.gethostname()] if self._any_address else []))
        self._names = {_bare(each) for each in names}

    def refusal(self, request: Request) -> Response | None:
        """Return the answer to a request that is refused: 403, 415 or 400; None for one that may pass."""
        headers = request.headers
        hosts = {_bare(_host_of(value)) for value in headers.getlist("host")}
        if not all(self._may_reach(host) for host in hosts):
            return _problem(403, "this Host name is not answered; see --allowed-host")
        origins = headers.getlist("origin")
        # Another port of this machine is no foreign page: a front end under development calls from there.
        if not all(self._is_named(host) or host in hosts for host in map(_origin_host, origins)):
            return _problem(403, "requests from pages of another origin are refused")
        # Images and scripts carry no Origin. A link that the user follows is let through.
        cross_site = headers.get("sec-fetch-site") == "cross-site"
        if cross_site and not origins and headers.get("sec-fetch-mode") != "navigate":
            return _problem(403, "requests from pages of another site are refused")
        if _writes_to_the_host(request) and not _is_json(headers.get("content-type", "")):
            # 400 is what the Durable extension answers to an event that is not JSON.
            at_webhook = raw_path(request).lower().startswith("/runtime/")
            return _problem(400 if at_webhook else 415, "Only application/json request content is supported")
        return None

    def _may_reach(self, host: str) -> bool:
        # An address needs no name to be resolved, so there is nothing to rebind.
        return self._is_named(host) or (self._any_address and _address(host) is not None)

    def _is_named(self, host: str) -> bool:
        return is_loopback(host) or host in self._names


def _bare(host: str) -> str:
    """Return a name in lower case without a final dot, an IPv6 address without brackets."""
    return host.strip("[]").rstrip(".").lower()


def _host_of(header: str) -> str:
    """Return the host of `host[:port]`; an IPv6 address keeps its brackets."""
    if header.startswith("["):
        return header.partition("]")[0] + "]"
    return header.partition(":")[0]


def _origin_host(origin: str) -> str:
    """Return an origin's host; "" for `null` and what is no origin, which is nobody's."""
    try:
        return _bare(urlsplit(origin).hostname or "")
    except ValueError:
        return ""


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None


def _writes_to_the_host(request: Request) -> bool:
    """Return whether the request has a body for an endpoint of the host itself."""
    has_body = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
    return has_body and raw_path(request).lower().startswith(_HOST_PATHS)


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def _problem(status: int, message: str) -> Response:
    return JSONResponse({"error": message}, status_code=status)
