"""PEM files that keys of a dependency name."""

import ssl
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from durable_retry.base.validation import Problem


def problems_of_pem(
    place: str, files: Iterable[Path], use: Callable[[ssl.SSLContext], None]
) -> Iterator[Problem]:
    """List which files are missing; where none is, why they cannot be used.

    Args:
        place: The key that names them, as a JSON pointer.
        use: Lets connections of a context use them; raises OSError where it cannot.
    """
    missing = [file for file in dict.fromkeys(files) if not file.is_file()]
    yield from (Problem(place, f"names no file: {file}") for file in missing)
    if missing:
        return
    try:
        use(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    except OSError as error:  # an SSLError is one
        yield Problem(place, f"cannot be used: {error}")
