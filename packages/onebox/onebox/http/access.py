"""The checks that keep web pages out.

A page in the user's browser can send requests to loopback. Three checks refuse what it could send, before
any handler runs: the Host header (DNS rebinding), the Origin header (cross-site requests), and a JSON content
type, which a page of another origin cannot send without a preflight request: for writes to the host's own
endpoints, and for all that a page of another port of this machine sends.
"""

import functools
import ipaddress
import re
import socket
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from onebox.http.messages import raw_path, refusal

_KNOWN_HOSTS = 256  # names whose answer is kept: clients use few, and a page may make up any number
_HOST = re.compile(r"(?P<host>[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
_HOST_PATHS = ("/admin/", "/runtime/")
_READING = frozenset({"GET", "HEAD", "OPTIONS"})


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
        hosts = [_host_of(value) for value in headers.getlist("host")]
        has_too_few = not hosts and request.scope.get("http_version") == "1.1"
        if has_too_few or len(hosts) > 1 or not all(map(self._may_reach, hosts)):
            return _problem(403, "this Host name is not answered; see --allowed-host")
        origins = headers.getlist("origin")
        # Another port of this machine is no foreign page: a front end under development calls from there.
        if not all(self._is_named(host) or host in hosts for host in map(_origin_host, origins)):
            return _problem(403, "requests from pages of another origin are refused")
        # Images and scripts carry no Origin. A link that the user follows is let through.
        cross_site = headers.get("sec-fetch-site") == "cross-site"
        if cross_site and not origins and headers.get("sec-fetch-mode") != "navigate":
            return _problem(403, "requests from pages of another site are refused")
        is_json = _is_json(headers.get("content-type", ""))
        if not is_json and _is_written_by_another_port(request, origins):
            return _problem(415, "a page of another port sends application/json, or is refused")
        if not is_json and _writes_to_the_host(request):
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
    """Return the host of `host[:port]`; "" for any other form, which is nobody's."""
    form = _HOST.fullmatch(header)
    return "" if form is None else _bare(form["host"])


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


def _is_written_by_another_port(request: Request, origins: list[str]) -> bool:
    # Also without a body: many a POST of the API needs none.
    is_own = all(urlsplit(origin).netloc == request.headers.get("host") for origin in origins)
    return not is_own and request.method not in _READING


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def _problem(status: int, message: str) -> Response:
    return refusal(status, {"error": message})
