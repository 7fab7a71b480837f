"""One connection to the web server: how large and how slow a request may be, and when bytes go out.

The limits are those of Kestrel, under which the host runs.
"""

import asyncio
import resource
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import urlsplit

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.auto import AutoHTTPProtocol

# A client's pool keeps connections for less than that.
KEEP_ALIVE_SECONDS: Final = 130

_LARGEST_HEAD_BYTES: Final = 40_960  # Kestrel: 8 KB for the line and 32 KB for headers
_PIECE_BYTES: Final = 16_384
"""What the parser gets at once. Limits are looked at between two pieces: they hold for one large read too."""
_HEAD_SECONDS: Final = 30.0
_LEAST_BODY_BYTES_PER_SECOND: Final = 240
_BODY_GRACE_SECONDS: Final = 5.0
_DESCRIPTORS_FOR_OTHERS: Final = 256  # the task hub, storage, the app
_FEWEST_CONNECTIONS: Final = 64


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What the clients may take.

    Attributes:
        connections: How many at once; 503 above.
        head_bytes: The largest request line with its headers, and the most around a body between two parts
            of it, such as its trailers; 431 above.
        head_seconds: How long a head may take from its first byte; 408 after that.
        idle_seconds: How long a connection may be silent before its first request; it is closed then.
        body_bytes_per_second: The least rate of a body on average; 408 below.
        body_grace_seconds: How often the rate is looked at, first after so long.
    """

    connections: int
    head_bytes: int = _LARGEST_HEAD_BYTES
    head_seconds: float = _HEAD_SECONDS
    idle_seconds: float = KEEP_ALIVE_SECONDS
    body_bytes_per_second: float = _LEAST_BODY_BYTES_PER_SECOND
    body_grace_seconds: float = _BODY_GRACE_SECONDS

    @classmethod
    def of_this_process(cls) -> Self:
        """Raise the number of open files as far as the process may, and leave some of them to others."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < hard:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
                soft = hard
            except (OSError, ValueError):  # macOS has a lower limit that it does not tell
                pass
        return cls(max(soft - _DESCRIPTORS_FOR_OTHERS, _FEWEST_CONNECTIONS))


class Config(uvicorn.Config):
    """uvicorn's, with limits of ours."""

    def __init__(self, app: ASGIApp, limits: ConnectionLimits, **options: Any) -> None:
        # h11 has a smaller limit of its own, and answers 400.
        super().__init__(app, h11_max_incomplete_event_size=limits.head_bytes, **options)
        self.limits = limits


class JoinedWrites:
    """A connection that sends the head of an answer together with a body that follows at once."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._held = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Hold the first piece back until the next one, or until the present pass of the loop is over."""
        if not data:
            return  # asyncio keeps an empty piece of `writelines`, and tries to send it for ever.
        if self._held:
            held, self._held = self._held, b""
            self._transport.writelines([held, data])
        else:
            self._held = data
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Send what is held back, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held)


_IS_HTTPTOOLS: Final = hasattr(AutoHTTPProtocol, "on_body")


class Protocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type] # one of two, by what is installed
    """Writes each answer in one piece where it can, and bounds the heads of requests and the time of bodies.

    uvicorn bounds neither: a client that sends a head for ever would fill the memory, and one that sends a
    body for ever would hold a request.
    """

    _head_bytes = 0
    _is_in_head = False
    _body_bytes = 0
    _framing_bytes = 0
    _body_seconds = 0.0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin; refuse a client too many, and leave those that are there alone."""
        super().connection_made(JoinedWrites(transport))
        if len(self.connections) > self.config.limits.connections:
            self._refuse("503 Service Unavailable")
        else:
            self._deadline = self.loop.call_later(self.config.limits.idle_seconds, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._forget_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what has come, in pieces that the limits can be held to."""
        while data and not self.transport.is_closing():
            room_bytes = self.config.limits.head_bytes - self._head_bytes
            if room_bytes <= 0:
                self._refuse("431 Request Header Fields Too Large")
                return
            size = min(room_bytes, _PIECE_BYTES)
            self._take_piece(data[:size])
            data = data[size:]

    def _take_piece(self, data: bytes) -> None:
        """Note whether a piece has completed a head."""
        known, in_body = self.cycle, self.cycle is not None and self.cycle.more_body
        super().data_received(data)
        if self.cycle is not known:
            self._head_bytes, self._body_bytes, self._framing_bytes = 0, len(self.cycle.body), 0
            self._body_seconds = 0.0
            self._forget_deadline()
            self._await_body()
        elif in_body:
            self._take_body(len(data))
        else:
            self._take_head(len(data))

    # Only httptools calls what begins with `on_`. h11 bounds what is around a body, and keeps trailers apart.

    def on_message_begin(self) -> None:
        """Begin a head."""
        self._is_in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, and no trailer: whether it came before the request was read would decide of it."""
        if self._is_in_head:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._framing_bytes = 0
        super().on_body(body)

    def on_headers_complete(self) -> None:
        """Note the host of a target in absolute form; one that the Host header does not name is refused.

        httptools would pass the path alone; h11 passes the target, which is no path.
        """
        self._is_in_head = False
        named = b"" if self.url.startswith(b"/") else urlsplit(self.url).netloc
        if named and named not in {value for name, value in self.headers if name == b"host"}:
            self.headers.append((b"host", named))  # Two of them are refused.
        super().on_headers_complete()

    def _take_head(self, count: int) -> None:
        """Note a part of a head that is not complete."""
        if not self._head_bytes:
            self._forget_deadline()
            self._deadline = self.loop.call_later(
                self.config.limits.head_seconds, self._refuse, "408 Request Timeout"
            )
        self._head_bytes += count

    def _take_body(self, count: int) -> None:
        self._body_bytes += count
        self._framing_bytes += count  # too much by the body of this piece, which has set it to 0
        if not self.cycle.more_body:
            self._forget_deadline()
        elif _IS_HTTPTOOLS and self._framing_bytes > self.config.limits.head_bytes:
            self._refuse("431 Request Header Fields Too Large")

    def _await_body(self) -> None:
        if self.cycle.more_body:
            self._deadline = self.loop.call_later(self.config.limits.body_grace_seconds, self._look_at_body)

    def _look_at_body(self) -> None:
        """Refuse a body that comes too slowly; time for which we have not read does not count."""
        limits = self.config.limits
        if not self.flow.read_paused:
            self._body_seconds += limits.body_grace_seconds
        if self._body_bytes >= limits.body_bytes_per_second * self._body_seconds:
            self._await_body()
        elif self.cycle.response_complete:  # uvicorn says nothing of a body that ends after its answer
            self.transport.close()
        else:
            self._refuse("408 Request Timeout")

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, status: str) -> None:
        """Answer, unless another answer is under way, and close."""
        self._forget_deadline()
        if self.transport.is_closing():
            return
        cycle = self.cycle
        if cycle is None or cycle.response_complete or (cycle.more_body and not cycle.response_started):
            head = f"HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            self.transport.write(head.encode())
        self.transport.close()
