"""The command line."""

import argparse
import asyncio
import logging
import os
import sys
import threading
from pathlib import Path

from onebox.errors import CannotStartError
from onebox.host import Host, Options
from onebox.logs import set_up_logs
from onebox.reload import serve_and_reload

_JOIN_SECONDS = 0.2


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m onebox", description="Runs a Durable Functions app here."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("start", help="serve an app until Ctrl-C or SIGTERM")
    start.add_argument(
        "--app", type=Path, default=Path(), metavar="DIR", help="the app's folder (default: this one)"
    )
    start.add_argument("--host", default="127.0.0.1", help="address to listen on (default: loopback only)")
    start.add_argument(
        "--port", type=int, default=7071, help="port to listen on; 0 takes a free one (default: 7071)"
    )
    start.add_argument(
        "--data", type=Path, default=Path(".onebox"), metavar="DIR", help="what it keeps (default: .onebox/)"
    )
    start.add_argument(
        "--storage-ports",
        choices=("fixed", "auto"),
        default="fixed",
        help="where a started Azurite listens: 10000 to 10002, or on free ports (default: fixed)",
    )
    start.add_argument(
        "--auth", action="store_true", help="ask for the keys in keys.json of the data folder (default: open)"
    )
    start.add_argument("--reload", action="store_true", help="start anew when the app's files change")
    start.add_argument("--verbose", action="store_true", help="log each orchestrator and entity turn too")
    return parser


def main() -> None:
    """Serve; exit code 0 after a stop that was asked for, 1 when something stands in the way."""
    arguments = build_parser().parse_args()
    set_up_logs(verbose=arguments.verbose)
    options = Options(
        app=arguments.app.resolve(),
        host=arguments.host,
        port=arguments.port,
        data=arguments.data.resolve(),
        free_storage_ports=arguments.storage_ports == "auto",
        auth=arguments.auth,
    )
    if arguments.reload:
        command = [sys.executable, "-m", "onebox", *(each for each in sys.argv[1:] if each != "--reload")]
        _leave("", asyncio.run(serve_and_reload(command, options.app)))
    try:
        asyncio.run(Host(options).serve())
    except CannotStartError as obstacle:
        _leave(f"onebox: {obstacle}\n", 1)
    _leave("", 0)


def _leave(message: str, code: int) -> None:
    """End the process, also while a function of the app still blocks a thread that Python would wait for."""
    sys.stderr.write(message)
    sys.stderr.flush()
    sys.stdout.flush()
    logging.shutdown()
    if any(_stays(each) for each in threading.enumerate()):
        os._exit(code)
    raise SystemExit(code)


def _stays(thread: threading.Thread) -> bool:
    if thread is threading.main_thread() or thread.daemon:
        return False
    thread.join(_JOIN_SECONDS)
    return thread.is_alive()
