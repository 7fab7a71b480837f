"""`make run`: serves the app and the flaky target on loopback until Ctrl-C, SIGTERM, or the end of either."""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
START_SECONDS = 90  # Azurite's first start on a small machine takes the most of it.
STOP_SECONDS = 12  # onebox promises to be gone within 10.
POLL_SECONDS = 0.1
# Two, as is advised for production: a function that blocks one of them leaves the other to everybody else.
WORKER_PROCESSES = "FUNCTIONS_WORKER_PROCESS_COUNT"

FIRST_OPERATION = {
    "dependency": "flaky",
    "key": "first",
    "request": {"method": "POST", "path": "/fail/2", "json": {"amount": 5}},
}

WHAT_TO_TRY = """
Durable Retry serves on {app}
Dashboard: {app}/api/dashboard
Target that fails on request: {target}, which counts what it got: curl {target}/counts/first
Command line: .venv/bin/python -m retryctl find first
Stop with Ctrl-C. Data stays in {data}; what waits goes on at the next start.

Post an operation whose call fails twice before it succeeds, and open the status_url of the answer:

  curl -i {app}/api/operations \\
    -H 'Content-Type: application/json' \\
    -d '{body}'

"""


class CannotRunError(Exception):
    """Something stands in the way; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Part:
    """One child process: what it is called, how it is started, and where it answers once it serves."""

    name: str
    command: list[str]
    ready_url: str


def port_in_use(port: int) -> bool:
    """Returns whether another process already listens on this loopback port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return True
        return False


def require_free(ports: dict[str, int]) -> None:
    """Checks the ports before anything starts.

    Args:
        ports: The port per command-line option.

    Raises:
        CannotRunError: One is taken.
    """
    for option, port in ports.items():
        if port_in_use(port):
            raise CannotRunError(
                f'port {port} is in use. Stop what listens there, or: make run ARGS="{option} {port + 10}"'
            )


def parts(arguments: argparse.Namespace) -> list[Part]:
    """Returns what has to run, in the order of starting."""
    python = sys.executable
    target = [python, "-m", "examples.flaky_target", "--port", str(arguments.target_port)]
    onebox = [python, "-m", "onebox", "start", "--host", HOST, "--port", str(arguments.port)]
    onebox += ["--data", arguments.data, "--storage-ports", arguments.storage_ports]
    if arguments.reload:
        onebox.append("--reload")
    return [
        Part("the flaky target", target, f"http://{HOST}:{arguments.target_port}/counts"),
        Part("onebox", onebox, f"http://{HOST}:{arguments.port}/admin/host/status"),
    ]


def what_to_try(arguments: argparse.Namespace) -> str:
    """Returns what a newcomer can do next; the README shows the same command."""
    return WHAT_TO_TRY.format(
        app=f"http://localhost:{arguments.port}",
        target=f"http://localhost:{arguments.target_port}",
        data=arguments.data,
        body=json.dumps(FIRST_OPERATION),
    )


def start(part: Part) -> subprocess.Popen[bytes]:
    """Starts one part, tied to this process and out of the reach of the terminal's Ctrl-C."""
    tethered = [sys.executable, "-m", "scripts.tether", str(os.getpid()), "--", *part.command]
    environ = {WORKER_PROCESSES: "2", **os.environ}
    return subprocess.Popen(tethered, cwd=Path(__file__).parents[1], process_group=0, env=environ)  # noqa: S603 # our own


def answers(url: str) -> bool:
    """Returns whether a GET of this URL is answered 200."""
    try:
        with urllib.request.urlopen(url, timeout=2) as response:  # noqa: S310 # a loopback URL made above
            return bool(response.status == 200)  # noqa: PLR2004 # the status that every reader knows
    except (urllib.error.URLError, OSError):
        return False


def stop(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Asks all processes to end, and ends those that do not."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def watch(running: dict[str, subprocess.Popen[bytes]]) -> None:
    """Checks that every part runs.

    Raises:
        CannotRunError: One has ended by itself, or was killed.
    """
    for name, process in running.items():
        if (code := process.poll()) is None:
            continue
        if code < 0:
            raise CannotRunError(f"{name} was killed by {signal.Signals(-code).name}; start it again")
        raise CannotRunError(f"{name} ended by itself with exit code {code}; its last lines above say why")


def serve(arguments: argparse.Namespace) -> None:
    """Runs every part until a signal asks to stop.

    Raises:
        CannotRunError: A port is taken, or a part did not start or did not stay.
    """
    require_free({"--port": arguments.port, "--target-port": arguments.target_port})
    asked_to_stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: asked_to_stop.set())
    os.environ.setdefault("ONEBOX_QUEUES", "operations operations-poison")  # as infra/ does in Azure
    os.environ["FLAKY_TARGET_URL"] = f"http://{HOST}:{arguments.target_port}"
    wanted, running = parts(arguments), dict[str, subprocess.Popen[bytes]]()
    deadline = time.monotonic() + START_SECONDS
    try:
        running |= {part.name: start(part) for part in wanted}
        while not asked_to_stop.wait(POLL_SECONDS):
            watch(running)
            if not wanted:
                continue
            if answers(wanted[0].ready_url):
                wanted.pop(0)
                if not wanted:
                    print(what_to_try(arguments), flush=True)
            elif time.monotonic() > deadline:
                first = wanted[0]
                raise CannotRunError(
                    f"{first.name} did not answer on {first.ready_url} within {START_SECONDS} s"
                )
    finally:
        stop(running.values())


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.run", description="Serves the app and the flaky target."
    )
    parser.add_argument("--port", type=int, default=7071, help="the app's port (default: 7071)")
    parser.add_argument(
        "--target-port", type=int, default=7072, help="the flaky target's port (default: 7072)"
    )
    parser.add_argument("--data", default=".onebox", help="onebox's data folder (default: .onebox)")
    parser.add_argument(
        "--storage-ports", choices=("auto", "fixed", "free"), default="auto", help="as onebox takes it"
    )
    parser.add_argument("--reload", action="store_true", help="start anew when the app's files change")
    return parser


def main() -> None:
    """Runs until stopped; exits 1 with a message when something stands in the way."""
    try:
        serve(build_parser().parse_args())
    except CannotRunError as obstacle:
        raise SystemExit(f"run: {obstacle}") from None


if __name__ == "__main__":
    main()
