"""`make run`: serves the app and the flaky target on loopback until Ctrl-C, SIGTERM, or the end of either."""

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
START_SECONDS = 90  # Azurite's first start on a small machine takes the most of it.
STOP_SECONDS = 12  # onebox promises to be gone within 10.
POLL_SECONDS = 0.1

FIRST_OPERATION = {
    "dependency": "flaky",
    "key": "first",
    "request": {"method": "POST", "path": "/fail/2", "json": {"amount": 5}},
}

WHAT_TO_TRY = """
Durable Retry serves on {app}, and a target that fails on request on {target}.

Post an operation whose call fails twice before it succeeds:

  curl -i {app}/api/operations \\
    -H 'Content-Type: application/json' \\
    -d '{body}'

Watch it: the status_url of the answer shows each attempt, and when and why the next one runs:

  curl {app}/api/operations/OPERATION_ID

What the target received for that key: curl {target}/counts/first
All of it on one page: {app}/api/dashboard
Ctrl-C stops everything. Data stays in {data}; what waits goes on at the next start.
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


async def start(part: Part) -> asyncio.subprocess.Process:
    """Starts one part, tied to this process and out of the reach of the terminal's Ctrl-C."""
    tethered = [sys.executable, "-m", "scripts.tether", str(os.getpid()), "--", *part.command]
    return await asyncio.create_subprocess_exec(*tethered, cwd=Path(__file__).parents[1], process_group=0)


def answers(url: str) -> bool:
    """Returns whether a GET of this URL is answered 200."""
    try:
        with urllib.request.urlopen(url, timeout=2) as response:  # noqa: S310 # a loopback URL made above
            return bool(response.status == 200)  # noqa: PLR2004 # the status that every reader knows
    except (urllib.error.URLError, OSError):
        return False


async def until_ready(part: Part) -> None:
    """Returns once the part serves.

    Raises:
        CannotRunError: It did not in time.
    """
    try:
        async with asyncio.timeout(START_SECONDS):
            while not await asyncio.to_thread(answers, part.ready_url):  # noqa: ASYNC110 # another process
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise CannotRunError(
            f"{part.name} did not answer on {part.ready_url} within {START_SECONDS} s"
        ) from None


async def until_ended(part: Part, process: asyncio.subprocess.Process) -> None:
    """Waits for the part's end, which must not come before ours.

    Raises:
        CannotRunError: Always, once it has ended.
    """
    code = await process.wait()
    raise CannotRunError(f"{part.name} ended by itself with exit code {code}; its last lines above say why")


async def stop(process: asyncio.subprocess.Process) -> None:
    """Asks a process to end, and ends it if it does not."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()


async def print_when_ready(running: list[Part], arguments: argparse.Namespace) -> None:
    """Waits until every part serves, then prints what to try."""
    for part in running:
        await until_ready(part)
    print(what_to_try(arguments), flush=True)


async def serve(arguments: argparse.Namespace) -> None:
    """Runs every part until a signal asks to stop.

    Raises:
        CannotRunError: A port is taken, or a part did not start or did not stay.
    """
    require_free({"--port": arguments.port, "--target-port": arguments.target_port})
    asked_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, asked_to_stop.set)
    os.environ["FLAKY_TARGET_URL"] = f"http://{HOST}:{arguments.target_port}"
    wanted = parts(arguments)
    processes = [await start(part) for part in wanted]
    try:
        await first_of(asked_to_stop, wanted, processes, arguments)
    finally:
        await asyncio.gather(*(stop(process) for process in processes))


async def first_of(
    asked_to_stop: asyncio.Event,
    wanted: list[Part],
    processes: list[asyncio.subprocess.Process],
    arguments: argparse.Namespace,
) -> None:
    """Returns when asked to stop; raises what any part's watcher raises first."""
    stopping = asyncio.create_task(asked_to_stop.wait())
    printing = asyncio.create_task(print_when_ready(wanted, arguments))
    watchers = [asyncio.create_task(until_ended(*pair)) for pair in zip(wanted, processes, strict=True)]
    waiting: set[asyncio.Task[object]] = {stopping, printing, *watchers}
    try:
        while not stopping.done():
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        for task in waiting:
            task.cancel()


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
        asyncio.run(serve(build_parser().parse_args()))
    except CannotRunError as obstacle:
        raise SystemExit(f"run: {obstacle}") from None


if __name__ == "__main__":
    main()
