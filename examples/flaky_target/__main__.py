"""`python -m examples.flaky_target --port N`: serves the target until a signal stops it."""

import argparse

import uvicorn

from examples.flaky_target.app import make_app
from examples.flaky_target.troubles import CuttableProtocol


def main() -> None:
    """Parses the command line and serves."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.flaky_target", description="A service that fails on request."
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to bind (default: loopback)")
    parser.add_argument("--port", type=int, default=7072, help="port to bind (default: 7072)")
    arguments = parser.parse_args()
    uvicorn.run(
        make_app(),
        host=arguments.host,
        port=arguments.port,
        http=CuttableProtocol,
        log_level="warning",
        timeout_keep_alive=75,  # Longer than clients keep idle ones: a drop here is meant.
        timeout_graceful_shutdown=1,  # A hanging answer must not keep the target alive.
    )


if __name__ == "__main__":
    main()
