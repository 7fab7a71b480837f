"""The command line: `onebox start`, `new`, `storage`, `keys`, `check` and `export`."""

import argparse
import asyncio
import logging
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path

from onebox import CannotStartError, HostEndedError, __version__
from onebox.data_folder import DataFolder
from onebox.environment import DEVELOPMENT_STORAGE, HIGHEST_PORT, STORAGE
from onebox.first_app import write_first_app
from onebox.host import ENDED, Host, Options
from onebox.http.access import is_loopback
from onebox.http.keys import KeyRole, Keys
from onebox.hub.database import find_damage
from onebox.hub.export import export
from onebox.logs import set_up_logs
from onebox.numbers import plain_number
from onebox.signals import stop_signals
from onebox.storage.account import open_account, storage_lines
from onebox.storage.azurite import PortChoice

_LOG = logging.getLogger("onebox")
_JOIN_SECONDS = 0.2
_TETHER = Path(__file__).with_name("tether.py")

# What `--reload` watches, and how often.
_LOOK_SECONDS = 1.0
_SUFFIXES = {".py", ".json", ".toml"}
_PASSED_OVER = {"__pycache__", "node_modules", "venv"}


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="onebox", description="Runs a Durable Functions app here.")
    parser.add_argument("--version", action="version", version=f"onebox {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    _add_start(commands.add_parser("start", help="serve an app until Ctrl-C or SIGTERM"))
    new = commands.add_parser("new", help="write a first app into a folder")
    new.add_argument("folder", type=Path, metavar="DIR")
    storage = commands.add_parser("storage", help="run the storage emulator alone until Ctrl-C or SIGTERM")
    _add_storage(storage)
    keys = commands.add_parser("keys", help="make keys for those who call an app that starts with --auth")
    _add_keys(keys.add_subparsers(dest="keys_command", required=True).add_parser("add", help="make a key"))
    _add_data(commands.add_parser("check", help="look for damage in the task hub's store; 1 if there is any"))
    _add_data(commands.add_parser("export", help="print what can be read of the task hub's store, as JSON"))
    return parser


def _add_keys(add: argparse.ArgumentParser) -> None:
    add.add_argument("name", metavar="NAME", help="who calls with it; 1 to 64 letters, digits and _ . -")
    add.add_argument(
        "--role",
        required=True,
        choices=[role.value for role in KeyRole],
        help="what it may do, if the app knows roles",
    )
    _add_data(add)


def _add_start(start: argparse.ArgumentParser) -> None:
    start.add_argument(
        "--app", type=Path, default=Path(), metavar="DIR", help="the app's folder (default: this one)"
    )
    start.add_argument("--host", default="127.0.0.1", help="address to listen on (default: loopback only)")
    start.add_argument(
        "--port", type=_port, default=7071, help="port to listen on; 0 takes a free one (default: 7071)"
    )
    _add_storage(start)
    start.add_argument(
        "--join-storage", action="store_true", help="share the storage emulator that already runs"
    )
    start.add_argument(
        "--auth", action="store_true", help="require the keys in keys.json of the data folder (default: open)"
    )
    start.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a further Host name to answer to, such as a proxy's; may be repeated (default: none)",
    )
    start.add_argument("--reload", action="store_true", help="start anew when the app's files change")
    start.add_argument(
        "--verbose", action="store_true", help="list the functions, and log each orchestrator and entity turn"
    )


def _port(text: str) -> int:
    number = plain_number(text)
    if number is None or number > HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to {HIGHEST_PORT}, not {text!r}")
    return number


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data", type=Path, default=Path(".onebox"), metavar="DIR", help="what it keeps (default: .onebox/)"
    )


def _add_storage(parser: argparse.ArgumentParser) -> None:
    _add_data(parser)
    parser.add_argument(
        "--storage-ports",
        choices=[choice.value for choice in PortChoice],
        default=PortChoice.AUTO.value,
        help="where the storage emulator listens: auto takes 10000 to 10002, or free ports when one of those "
        "is taken; fixed takes 10000 to 10002 or stops; free always takes free ports (default: auto)",
    )


def main() -> None:
    """Run a command; exit code 0 after a stop by signal, 1 when it cannot start, 3 when its workers crash."""
    _open_standard_streams()
    arguments = build_parser().parse_args()
    set_up_logs(verbose=getattr(arguments, "verbose", False))
    try:
        match arguments.command:
            case "new":
                write_first_app(arguments.folder)
                sys.stdout.write(f"Wrote a first app. Next:\n\n\tcd {arguments.folder}\n\tonebox start\n\n")
            case "keys":
                _add_key(DataFolder(arguments.data.resolve()), arguments.name, KeyRole(arguments.role))
            case "storage":
                asyncio.run(_serve_storage(arguments.data.resolve(), PortChoice(arguments.storage_ports)))
            case "check":
                _check(_store_of(arguments.data))
            case "export":
                _export(_store_of(arguments.data))
            case _:
                _start(arguments)
    except CannotStartError as obstacle:
        _leave(f"onebox: {obstacle}\n", 1)
    except HostEndedError as ended:
        _leave(f"onebox: {ended}; here the Functions host ends, too, and the platform starts it\n", ENDED)
    _leave("", 0)


def _open_standard_streams() -> None:
    """Open the null device for each closed one: else the next file or socket would get its number."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)  # the lowest that is free
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w"))


def _add_key(data: DataFolder, name: str, role: KeyRole) -> None:
    """Make a key and print it; it is shown this once."""
    data.create()
    key = Keys.kept_in(data.keys).with_named(data.keys, name, role)
    sys.stdout.write(f"{key}\n")
    sys.stderr.write(
        f"The key of {name} ({role}), shown this once; `onebox start --auth` knows it when it next starts\n"
    )


def _start(arguments: argparse.Namespace) -> None:
    options = Options(
        app=arguments.app.resolve(),
        host=arguments.host,
        port=arguments.port,
        data=arguments.data.resolve(),
        storage_ports=PortChoice(arguments.storage_ports),
        join_storage=arguments.join_storage,
        auth=arguments.auth,
        allowed_hosts=tuple(arguments.allowed_host),
    )
    if arguments.reload:
        command = [sys.executable, "-m", "onebox", *(each for each in sys.argv[1:] if each != "--reload")]
        _leave("", asyncio.run(serve_and_reload(command, options.app)))
    if not (options.auth or is_loopback(options.host)):
        _LOG.warning(
            "%s is reachable from other machines, and every endpoint is open: start with --auth", options.host
        )
    asyncio.run(Host(options).serve())


async def _serve_storage(folder: Path, choice: PortChoice) -> None:
    """Run the emulator of a data folder until a signal.

    Raises:
        CannotStartError: The folder is in use, or the emulator cannot be started.
    """
    stop = asyncio.Event()
    for number in stop_signals():
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    data = DataFolder(folder)
    data.take()
    try:
        environ = {**os.environ, STORAGE.name: DEVELOPMENT_STORAGE}
        account = await open_account(environ, data, choice, join=False)
        lines = [*storage_lines(account), "", f"{STORAGE.name}={environ[STORAGE.name]}"]
        sys.stdout.write("\n".join([*lines, "", ""]))
        sys.stdout.flush()
        await stop.wait()
        await account.stop()
    finally:
        data.release()


def _store_of(folder: Path) -> Path:
    store = DataFolder(folder).hub
    if not store.is_file():
        raise CannotStartError(f"{store} is not there: name the folder with --data")
    return store


def _export(store: Path) -> None:
    """Print what can be read of a task hub's store.

    Raises:
        CannotStartError: It cannot be read at all.
    """
    try:
        lost = export(store, sys.stdout)
    except sqlite3.DatabaseError as error:
        raise CannotStartError(f"nothing of {store} can be read: {error}") from None
    if lost:
        _leave(f"onebox: {store} is damaged: at least {lost} rows could not be read\n", 1)


def _check(store: Path) -> None:
    """Say whether a task hub's store is sound."""
    damages = list(find_damage(store))
    if damages:
        remedy = 'docs/onebox.md, "A damaged store", says what to do'
        _leave("\n".join([f"onebox: {store} is damaged", *damages, remedy, ""]), 1)
    sys.stdout.write(f"{store} is sound\n")


def _leave(message: str, code: int) -> None:
    """End the process, even while a function of the app blocks a thread that Python would wait for."""
    sys.stderr.write(message)
    sys.stderr.flush()
    sys.stdout.flush()
    logging.shutdown()
    for thread in threading.enumerate():
        if _outlasts_a_join(thread):
            break
    # Not by SystemExit: one of gRPC's own threads may ask for the interpreter after it was finalized, which
    # crashes the process.
    os._exit(code)


def _outlasts_a_join(thread: threading.Thread) -> bool:
    if thread is threading.main_thread() or thread.daemon:
        return False
    thread.join(_JOIN_SECONDS)
    return thread.is_alive()


async def until_changed(folder: Path) -> Path:
    """Return the first file below the folder that was changed, added or removed, other than hidden ones."""
    before = await asyncio.to_thread(_times, folder)
    while True:
        await asyncio.sleep(_LOOK_SECONDS)  # the standard library has no file notifications
        after = await asyncio.to_thread(_times, folder)
        changed = before.items() ^ after.items()
        if changed:
            return min(path for path, _ in changed)


def _times(folder: Path) -> Mapping[Path, int]:
    return dict(_files(folder))


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    for path in folder.iterdir():
        if path.name.startswith(".") or path.name in _PASSED_OVER:
            continue
        if path.is_dir():
            yield from _files(path)
        elif path.suffix in _SUFFIXES:
            yield path, path.stat().st_mtime_ns


async def serve_and_reload(command: list[str], app: Path) -> int:
    """Run the command, and again whenever the app's files change; return its exit code after a signal.

    Args:
        command: Serves the app; ends within 10 s of SIGTERM.
        app: The app's folder.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in stop_signals():
        loop.add_signal_handler(number, stop.set)
    while True:
        server = await asyncio.create_subprocess_exec(
            sys.executable, "-I", str(_TETHER), str(os.getpid()), *command, start_new_session=True
        )
        changed = await _first_of(stop, until_changed(app))
        if server.returncode is None:
            server.terminate()
        code = await server.wait()
        if changed is None:
            return 0 if abs(code) == signal.SIGTERM else code  # it may not have got as far as to take one
        _LOG.info("%s changed: starting again", changed.relative_to(app))


async def _first_of(stop: asyncio.Event, change: Coroutine[None, None, Path]) -> Path | None:
    """Return what changed; None when the stop came first."""
    stopping, changing = asyncio.ensure_future(stop.wait()), asyncio.ensure_future(change)
    await asyncio.wait([stopping, changing], return_when=asyncio.FIRST_COMPLETED)
    for task in (stopping, changing):
        task.cancel()
    return changing.result() if changing.done() and not stop.is_set() else None
