"""The orchestrators of the last release, beside today's.

`releases/0.1.0.zip` holds them with the modules that they import, as the tag has them. They are loaded under
their own names and then taken out of `sys.modules`: so both versions are in one process. After a release:

    python -m tests.replay.last_release v0.2.0
"""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from durable_retry.engine.base.names import BATCH, OPERATION, OUTBOX, RELEASE_WAITING, REPLAY, SAGA

ARCHIVE: Final = Path(__file__).parent / "releases" / "0.1.0.zip"

ORCHESTRATORS: Final = {
    OPERATION: "operation.operation",
    OUTBOX: "outbox.outbox",
    BATCH: "batch.batch",
    SAGA: "saga.saga",
    REPLAY: "bulk_replay.replay",
    RELEASE_WAITING: "wake_waiting.release_waiting",
}
"""Where each is in the package `orchestrators` of that release."""

_PACKAGES: Final = ("durable_retry", "orchestrators")


@cache
def last_release() -> dict[str, Any]:
    """Return the orchestrators of the last release by their names."""
    with alone(ARCHIVE):
        return {name: _found(place) for name, place in ORCHESTRATORS.items()}


def _found(place: str) -> Any:
    module, _, function = place.partition(".")
    return getattr(importlib.import_module(f"orchestrators.{module}"), function)


@contextmanager
def alone(archive: Path) -> Iterator[None]:
    """Import this app's packages from an archive only, and forget them afterwards."""
    todays = _taken_out()
    sys.path.insert(0, str(archive))
    try:
        yield
    finally:
        sys.path.remove(str(archive))
        _taken_out()
        sys.modules.update(todays)


def _taken_out() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] in _PACKAGES]
    return {name: sys.modules.pop(name) for name in names}


def keep(tag: str) -> None:
    """Write the archive of a release: what its orchestrators import, and no more."""
    whole = ARCHIVE.with_name("whole.zip")
    command = ["git", "archive", "--format=zip", f"--output={whole}", tag, *_PACKAGES]
    subprocess.run(command, check=True)
    with alone(whole):
        for place in ORCHESTRATORS.values():
            _found(place)
        modules = sorted(name for name in sys.modules if name.partition(".")[0] in _PACKAGES)
    with ZipFile(whole) as source, ZipFile(ARCHIVE.with_name(f"{tag.removeprefix('v')}.zip"), "w") as kept:
        for name in modules:
            path = name.replace(".", "/")
            file = next(each for each in (f"{path}/__init__.py", f"{path}.py") if each in source.namelist())
            kept.writestr(ZipInfo(file), source.read(file), ZIP_DEFLATED)
    whole.unlink()


if __name__ == "__main__":
    keep(sys.argv[1])
