"""Following something until it ends, through short absences of the API."""

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any, Final

from retryctl import clock
from retryctl.api import UnreachableError
from retryctl.screen import Screen

POLL_SECONDS: Final = 1.0
DRAW_SECONDS: Final = 0.2
PATIENCE_SECONDS: Final = 30.0
"""How long the API may be away before following ends."""


def follow(
    look: Callable[[], dict[str, Any]],
    finished: AbstractSet[str],
    screen: Screen,
    live_text: Callable[[dict[str, Any]], str],
) -> Iterator[dict[str, Any]]:
    """Give a document each time it changed, the last one when it is finished.

    Args:
        look: Asks for the document.
        finished: Values of its `status` after which nothing follows.
        screen: Where the live line is drawn meanwhile.
        live_text: What stands in it; called several times a second, for countdowns.

    Raises:
        UnreachableError: The API is away for longer than `PATIENCE_SECONDS`.
    """
    shown: dict[str, Any] = {}
    while True:
        document = _patiently(look, screen)
        if document != shown:
            yield document
            shown = document
        if document["status"] in finished:
            return
        for _ in range(round(POLL_SECONDS / DRAW_SECONDS)):
            screen.live(live_text(document))
            clock.pause(DRAW_SECONDS)


def _patiently(look: Callable[[], dict[str, Any]], screen: Screen) -> dict[str, Any]:
    began = clock.monotonic_seconds()
    while True:
        try:
            return look()
        except UnreachableError as error:
            if clock.monotonic_seconds() - began > PATIENCE_SECONDS:
                raise
            screen.live(f"{error}; asking again")
            clock.pause(POLL_SECONDS)
