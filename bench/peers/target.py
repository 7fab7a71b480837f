"""The flaky target of this benchmark: `python -m bench.peers.target`; prints its port once it serves.

    GET or POST /fails/<K>/<KEY>         503 for the first K calls with this key, then 200
    GET or POST /refuses/<STATUS>/<KEY>  that status for every call
    GET /log                             [key, arrival, answer, status] of each call, in the order of arrival

Times are seconds of this process's monotonic clock. A raw protocol, because a web framework would cost more
processor time per call than some of the systems that are compared.
"""

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass, field

END_OF_HEAD = b"\r\n\r\n"
LENGTH = b"content-length:"
REFUSES = "refuses"
OK = 200
UNAVAILABLE = 503


@dataclass(slots=True)
class Ledger:
    """What has been called.

    Attributes:
        calls: How many calls each key has had.
        log: Key, arrival, answer and status of each call.
    """

    calls: Counter[str] = field(default_factory=Counter)
    log: list[tuple[str, float, float, int]] = field(default_factory=list)

    def answer(self, path: str) -> tuple[int, bytes]:
        """Returns status and body for one request, and notes it if it is a call."""
        arrival = time.monotonic()
        if path == "/log":
            return OK, json.dumps(self.log).encode()
        _, kind, number, key = path.split("/")
        self.calls[key] += 1
        failing = UNAVAILABLE if self.calls[key] <= int(number) else OK
        status = int(number) if kind == REFUSES else failing
        self.log.append((key, arrival, time.monotonic(), status))
        return status, json.dumps({"key": key, "call": self.calls[key]}).encode()


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
            if not found or len(rest) < (length := _body_length(head)):
                return
            self._unread = rest[length:]
            self._answer(head.split(b" ", 2)[1].decode())

    def _answer(self, path: str) -> None:
        status, body = self._ledger.answer(path)
        reason = b"OK" if status == OK else b"Failed"
        head = b"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        if self._transport is not None:
            self._transport.write(head % (status, reason, len(body)) + body)


def _body_length(head: bytes) -> int:
    _, found, rest = head.lower().partition(LENGTH)
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
