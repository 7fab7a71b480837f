"""The token of one dependency: fetched when a request needs it, before it ends, and when it is refused.

Requests that need one at the same time wait for the same fetch, which goes on when one of them is cancelled.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from durable_retry.attempt.http_client import SignInError
from durable_retry.base.text import Secret
from durable_retry.runtime import clock

_EARLY_SECONDS: Final = 300.0
_EARLY_SHARE: Final = 0.25
"""A new one is fetched so long before the end, or in the last quarter of a short life."""

_REST_SECONDS: Final = 1.0
"""How long a failed fetch is not repeated: its error is raised to every request meanwhile."""

_NEXT_TRY_SECONDS: Final = 10.0
"""The pause between two fetches while a token is still good, and between two after refusals: a new token may
be refused for the same reason."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token, with instants of the monotonic clock.

    Attributes:
        value: The value of the header in which it is sent.
        fresh_until: When the next one is fetched.
        ends_at: When it is good no more.
    """

    value: Secret
    fresh_until: float
    ends_at: float


def bearer(text: str, seconds: float, fetched_at: float) -> Token:
    """Return a token that was asked for at an instant and is good for so long from then on."""
    early = min(_EARLY_SECONDS, seconds * _EARLY_SHARE)
    return Token(Secret(f"Bearer {text}"), fetched_at + seconds - early, fetched_at + seconds)


@dataclass(slots=True)
class Tokens:
    """Gives the token of one dependency, on one event loop.

    Attributes:
        fetch: Fetches a new one; raises a SignInError where it cannot.
    """

    fetch: Callable[[], Awaitable[Token]]
    _token: Token | None = None
    _fetching: asyncio.Task[Token] | None = None
    _rests_until: float = -inf
    _renewed_at: float = -inf

    async def current(self) -> Token:
        """Return a token that is good at present.

        Raises:
            SignInError: There is none.
        """
        token, now = self._token, clock.monotonic_seconds()
        if token is not None and now < token.fresh_until:
            return token
        if token is None or now >= token.ends_at:
            return await self._await_fetch()
        self._token = replace(token, fresh_until=now + _NEXT_TRY_SECONDS)
        self._fetch_task()
        return token

    async def after_refusal(self, refused: Token) -> Token | None:
        """Return the token to send in place of one that was refused; None where there is no other.

        Raises:
            SignInError: There is none at all.
        """
        now = clock.monotonic_seconds()
        if self._token is not None and self._token.value == refused.value:
            if now < self._renewed_at + _NEXT_TRY_SECONDS:
                return None
            self._token, self._renewed_at = None, now
        token = await self.current()
        return None if token.value == refused.value else token

    def close(self) -> None:
        """Cut a fetch off."""
        if self._fetching is not None:
            self._fetching.cancel()

    async def _await_fetch(self) -> Token:
        try:
            # Shielded: a request that is cancelled must not end it for the others.
            return await asyncio.shield(self._fetch_task())
        except SignInError as error:
            raise type(error)(str(error)) from None  # each waiting request raises an error of its own

    def _fetch_task(self) -> asyncio.Task[Token]:
        fetching = self._fetching
        if fetching is None or (fetching.done() and clock.monotonic_seconds() >= self._rests_until):
            fetching = self._fetching = asyncio.create_task(self._fetch_and_keep())
            # No request may be waiting: asyncio would log that the error was never retrieved.
            fetching.add_done_callback(lambda task: task.cancelled() or task.exception())
        return fetching

    async def _fetch_and_keep(self) -> Token:
        try:
            token = self._token = await self.fetch()
        except SignInError:
            self._rests_until = clock.monotonic_seconds() + _REST_SECONDS
            raise
        return token
