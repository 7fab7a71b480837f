"""A server on loopback that passes each request to a function and answers what that returns."""

import gzip
import ssl
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

type StubAnswer = Callable[[str, bytes], bytes]
"""Takes a path and a body, decompressed, and returns the body of the answer."""


class StubServer:
    """Serves from its construction on.

    Attributes:
        url: Where, without a slash at the end.
    """

    def __init__(self, answer: StubAnswer, tls: ssl.SSLContext | None = None) -> None:
        server = self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler_for(answer))
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}"
        self._thread: Thread | None = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._server.shutdown()
            thread.join()
            self._server.server_close()


def handler_for(answer: StubAnswer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            is_packed = self.headers.get("content-encoding") == "gzip"
            self._answer(gzip.decompress(body) if is_packed else body)

        def do_GET(self) -> None:
            self._answer(b"")

        def _answer(self, body: bytes) -> None:
            answered = answer(self.path, body)
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answered)))
            self.end_headers()
            self.wfile.write(answered)

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    return Handler
