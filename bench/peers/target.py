"""The flaky target of this benchmark: `python -m bench.peers.target`; prints its port once it serves.

    GET or POST /fails/<K>/<KEY>           503 for the first K calls with this key, then 200
    GET or POST /refuses/<STATUS>/<KEY>    that status for every call
    GET or POST /attempts/<K>/<KEY>        503 while the header X-Attempt is at most K; after 50 ms
    GET or POST /down/<FROM>/<UNTIL>/<KEY> 503 with Retry-After between two instants, else 200
    GET /log                               [key, arrival, answer, status, attempt] of each call, by arrival

Instants are seconds of the monotonic clock, which is one for all processes of a machine. A call that is not
answered yet has the answer 0; without X-Attempt the attempt is 0. A raw protocol, because a web framework
would cost more processor time per call than some of the systems that are compared.
"""

import asyncio
import json
import time
from collections import Counter
from dataclasses import astuple, dataclass, field

END_OF_HEAD = b"\r\n\r\n"
LENGTH = b"content-length:"
ATTEMPT = b"x-attempt:"
OK = 200
UNAVAILABLE = 503
RETRY_AFTER_SECONDS = 5
ANSWER_SECONDS = 0.05


@dataclass(slots=True)
class Call:
    """One call: instants in seconds of the monotonic clock; `answer` is 0 until it is answered."""

    key: str
    arrival: float
    answer: float
    status: int
    attempt: int = 0


@dataclass(slots=True)
class Ledger:
    """What has been called.

    Attributes:
        calls: How many calls each key has had.
        log: Each call, in the order of arrival.
    """

    calls: Counter[str] = field(default_factory=Counter)
    log: list[Call] = field(default_factory=list)

    def note(self, path: str, attempt: int = 0) -> Call:
        """Notes a call and chooses its status."""
        arrival = time.monotonic()
        kind, *numbers, key = path.removeprefix("/").split("/")
        self.calls[key] += 1
        first = float(numbers[0])
        match kind:
            case "refuses":
                status = int(first)
            case "attempts":
                status = UNAVAILABLE if attempt <= first else OK
            case "down":
                status = UNAVAILABLE if first <= arrival < float(numbers[1]) else OK
            case _:
                status = UNAVAILABLE if self.calls[key] <= first else OK
        self.log.append(Call(key, arrival, 0.0, status, attempt))
        return self.log[-1]


class Connection(asyncio.Protocol):
    """One kept-alive HTTP/1.1 connection; request bodies are read and ignored."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._unread = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes the transport."""
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answers every request that has arrived whole."""
        self._unread += data
        while True:
            head, found, rest = self._unread.partition(END_OF_HEAD)
            if not found or len(rest) < (length := _number(head, LENGTH)):
                return
            self._unread = rest[length:]
            self._take(head.split(b" ", 2)[1].decode(), _number(head, ATTEMPT))

    def _take(self, path: str, attempt: int) -> None:
        if path == "/log":
            self._write(OK, json.dumps(list(map(astuple, self._ledger.log))).encode())
            return
        call = self._ledger.note(path, attempt)
        if path.startswith("/attempts/"):
            asyncio.get_running_loop().call_later(ANSWER_SECONDS, self._answer, call)
        else:
            self._answer(call, tells_when=path.startswith("/down/"))

    def _answer(self, call: Call, *, tells_when: bool = False) -> None:
        call.answer = time.monotonic()
        body = json.dumps({"key": call.key, "call": self._ledger.calls[call.key]}).encode()
        hint = b"Retry-After: %d\r\n" % RETRY_AFTER_SECONDS if tells_when and call.status != OK else b""
        self._write(call.status, body, hint)

    def _write(self, status: int, body: bytes, hint: bytes = b"") -> None:
        reason = b"OK" if status == OK else b"Failed"
        head = b"HTTP/1.1 %d %s\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        if self._transport is not None:
            self._transport.write(head % (status, reason, hint, len(body)) + body)


def _number(head: bytes, name: bytes) -> int:
    """Returns a header that is a number; 0 when it is missing."""
    _, found, rest = head.lower().partition(b"\r\n" + name)
    return int(rest.split(b"\r\n", 1)[0]) if found else 0


async def main() -> None:
    """Serves on a free port of loopback until the process is ended."""
    ledger = Ledger()
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(ledger), "127.0.0.1", 0, backlog=1024
    )
    print(f"ready {server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
