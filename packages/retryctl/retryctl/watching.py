"""Polling a document until it is finished, and the clock that the command line uses."""

import time
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from rich.text import Text

from retryctl.errors import UnreachableError
from retryctl.output import Screen, span

POLL_SECONDS: Final = 1.0
DRAW_SECONDS: Final = 0.2
PATIENCE_SECONDS: Final = 30.0
"""How long the API may be unreachable before watching ends."""


now = partial(datetime.now, UTC)
pause = time.sleep
monotonic_seconds = time.monotonic
"""The clock of the command line; a test puts its own in place."""


def left(instant: str, digits: int | None = 1) -> str:
    """Return the time to an RFC 3339 instant, such as `1.3 s`; that to a past one is 0."""
    return span(round(max(0.0, (datetime.fromisoformat(instant) - now()).total_seconds()), digits))


def ago(instant: str) -> str:
    """Return the time since an RFC 3339 instant, such as `2 min ago`."""
    return f"{span(round(max(0.0, (now() - datetime.fromisoformat(instant)).total_seconds())))} ago"


def follow(
    fetch: Callable[[], dict[str, Any]],
    finished: AbstractSet[str],
    screen: Screen,
    live: Callable[[dict[str, Any]], str],
) -> Iterator[dict[str, Any]]:
    """Yield a document each time it changes, until its status is a finished one.

    Args:
        fetch: Gets the document.
        finished: Values of `status` after which the document does not change.
        screen: Draws the live line between polls.
        live: Text of the live line; called every `DRAW_SECONDS`, so that it can count down.

    Raises:
        UnreachableError: The API is unreachable for longer than `PATIENCE_SECONDS`.
    """
    shown: dict[str, Any] = {}
    while True:
        document = _fetch_patiently(fetch, screen)
        if document != shown:
            yield document
            shown = document
        if document["status"] in finished:
            return
        for _ in range(round(POLL_SECONDS / DRAW_SECONDS)):
            screen.live(Text(live(document)))
            pause(DRAW_SECONDS)


def _fetch_patiently(fetch: Callable[[], dict[str, Any]], screen: Screen) -> dict[str, Any]:
    began = monotonic_seconds()
    while True:
        try:
            return fetch()
        except UnreachableError as error:
            if monotonic_seconds() - began > PATIENCE_SECONDS:
                raise
            screen.live(Text(f"{error}; trying again"))
            pause(POLL_SECONDS)
