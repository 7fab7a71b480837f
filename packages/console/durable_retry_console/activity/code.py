"""The code that this process runs, as digests: read once at its start, since files may change later."""

import sys
from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from threading import Thread
from typing import Final

from durable_retry.settings.configuration import APP_ROOT

_INSTALLED: Final = ("durable_retry", "durable_retry_console")


def begin() -> None:
    """Read the code in the background, while the app starts."""
    Thread(target=code_on_disk, name="code", daemon=True).start()


def running_code() -> Mapping[str, str]:
    """Return a digest of each module and package that this process has imported from the app's own folder.

    So what lies beside them (a build, a virtual environment, data) counts as nothing.
    """
    return {name: digest for name, digest in code_on_disk().items() if name in sys.modules}


@cache
def code_on_disk() -> Mapping[str, str]:
    """Return a digest of each module and package in the app's folder and of the library; read once."""
    return {name: _digest(root) for name, root in _roots()}


def _roots() -> Iterator[tuple[str, Path]]:
    for name in _INSTALLED:
        yield name, Path(sys.modules[name].__path__[0])
    for path in sorted(APP_ROOT.iterdir()):
        # Where a virtual environment or a build has code, it lies deeper.
        if path.suffix == ".py" or (path.is_dir() and any(path.glob("*.py"))):
            yield path.stem, path


def _digest(root: Path) -> str:
    digest = sha256()
    for file in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]
