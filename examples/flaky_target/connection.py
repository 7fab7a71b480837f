"""Cutting the client's connection, which HTTP frameworks rightly do not offer."""

import asyncio

from starlette.requests import Request
from uvicorn.protocols.http.h11_impl import H11Protocol


class CuttableProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol, which also gives each request its `request.state.transport`."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in the base class
        """Remembers the transport for the requests of this connection."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, "transport": transport}


async def cut(request: Request) -> None:
    """Resets the client's connection and returns once the server has noticed."""
    transport: asyncio.Transport = request.state.transport
    transport.abort()
    while (await request.receive())["type"] != "http.disconnect":
        pass
