"""A TCP connection that can be cut: a worker reaches the task hub through it."""

import asyncio
from contextlib import suppress

CHUNK = 65_536


class Relay:
    """Forwards connections from a port of its own to an address; `cut` breaks them, `mend` allows more."""

    def __init__(self, address: str) -> None:
        self._address = address  # `host:port`, or `unix:` and a path
        self._is_cut = False
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Begins to listen, and returns where: `host:port`."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        self._server = server
        return f"{host}:{port}"

    def cut(self) -> None:
        self._is_cut = True
        for writer in self._open:
            writer.transport.abort()

    def mend(self) -> None:
        self._is_cut = False

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        kind, _, rest = self._address.rpartition(":")
        if kind == "unix":
            return await asyncio.open_unix_connection(rest)
        return await asyncio.open_connection(kind, int(rest))

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        there_reader, there_writer = await self._connection()
        both = {writer, there_writer}
        self._open |= both
        try:
            await asyncio.gather(_pass_on(reader, there_writer), _pass_on(there_reader, writer))
        finally:
            self._open -= both


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            await writer.drain()
    writer.close()
