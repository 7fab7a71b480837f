"""The peers' own environment in `.bench/peers`: a venv and Restate's server, made when first needed."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.processes import ROOT

HERE = Path(__file__).parent
HOME = ROOT / ".bench" / "peers"
PYTHON = HOME / "venv" / "bin" / "python"
WANTED = ("requirements.txt", "package.json", "package-lock.json")


class PeersNotInstalledError(Exception):
    """The environment could not be made; the message says why."""


def set_up() -> None:
    """Makes the environment, or makes it anew when a pinned version has changed.

    Raises:
        PeersNotInstalledError: npm is missing, or an installation failed.
    """
    wanted = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in WANTED)).hexdigest()
    stamp = HOME / "installed"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    npm = shutil.which("npm")
    if npm is None:
        raise PeersNotInstalledError("npm is needed to install Restate's server")
    print(f"peers: installing into {HOME.relative_to(ROOT)}", flush=True)
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    for name in WANTED:
        shutil.copy(HERE / name, HOME)
    _run(sys.executable, "-m", "venv", str(HOME / "venv"))
    _run(str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", WANTED[0])
    # Without scripts: the only one of these packages reports the installation to its maker.
    _run(npm, "ci", "--ignore-scripts", "--silent", "--no-audit", "--no-fund")
    stamp.write_text(wanted)


def restate_server() -> Path:
    """Returns the program, not the Node script in front of it, whose child would outlive a kill.

    Raises:
        PeersNotInstalledError: There is none for this machine.
    """
    for program in (HOME / "node_modules" / "@restatedev").glob("restate-server-*/bin/restate-server"):
        if os.access(program, os.X_OK):
            return program
    raise PeersNotInstalledError("Restate has no server for this machine")


def _run(*command: str) -> None:
    try:
        subprocess.run(command, cwd=HOME, check=True)  # noqa: S603 # our own commands
    except subprocess.CalledProcessError as error:
        raise PeersNotInstalledError(f"{command[0]} ended with {error.returncode}; see above") from error
