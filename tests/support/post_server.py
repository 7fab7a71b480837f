"""A server on loopback that passes each POST to a function and answers what that returns."""

import gzip
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

type PostHandler = Callable[[str, bytes], bytes]
"""Takes a path and a body, decompressed, and returns the body of the answer."""


class PostServer:
    """Serves from its construction on.

    Attributes:
        url: Where, without a slash at the end.
    """

    def __init__(self, answer: PostHandler) -> None:
        self._server: ThreadingHTTPServer | None = ThreadingHTTPServer(("127.0.0.1", 0), handler_for(answer))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def stop(self) -> None:
        """Stops serving; a second call does nothing."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            self._thread.join()
            server.server_close()


def handler_for(answer: PostHandler) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            is_packed = self.headers.get("content-encoding") == "gzip"
            answered = answer(self.path, gzip.decompress(body) if is_packed else body)
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answered)))
            self.end_headers()
            self.wfile.write(answered)

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    return Handler
