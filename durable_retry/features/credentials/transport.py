"""Sending requests with a token, or with the app's certificate."""

import re
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, override

import httpx

from durable_retry.attempt.excerpts import hide_tokens
from durable_retry.attempt.http_client import CredentialRefusedError, SignInError
from durable_retry.attempt.http_pool import PROGRESS, SendProgress
from durable_retry.base.text import Secret
from durable_retry.features.credentials.services import TokenService, fetch_by_identity
from durable_retry.features.credentials.tables import CredentialKeys, keys_of
from durable_retry.features.credentials.tokens import Token, Tokens
from durable_retry.rules.config.dependency import Dependency

_MOST_SECONDS: Final = 10.0
"""The longest that an attempt waits for a token, unless half of its time is less."""

_UNAUTHORIZED: Final = 401


def signed(dependency: Dependency, inner: httpx.AsyncBaseTransport) -> httpx.AsyncBaseTransport:
    """Return what the requests to a dependency are sent over: `inner` where it needs nothing more."""
    keys = keys_of(dependency)
    if keys.tls is not None:
        inner = CertifiedTransport(dependency.name, inner)
    fetch = _fetch_for(dependency, keys)
    return inner if fetch is None or dependency.auth is None else SignedTransport(dependency, inner, fetch)


def _fetch_for(dependency: Dependency, keys: CredentialKeys) -> Callable[[], Awaitable[Token]] | None:
    seconds = min(_MOST_SECONDS, dependency.timeouts.attempt_seconds / 2)
    if (auth := keys.auth) is None:
        return None
    if auth.identity is not None:
        return partial(fetch_by_identity, auth.identity, auth.client_id, seconds)
    if (oauth := auth.oauth) is None:
        return None
    name = f"token service of {dependency.name}"
    # Its keys of other features hold for the service, too, such as the authorities to trust.
    others = {feature: own for feature, own in dependency.of_features.items() if feature != "credentials"}
    service = Dependency(
        name=name, base_url=oauth.token_url, timeouts=dependency.timeouts, of_features=others
    )
    return TokenService(service, oauth, seconds).fetch


class SignedTransport(httpx.AsyncBaseTransport):
    """Sends requests with a token; one that is answered with 401 goes once more, with a new token."""

    def __init__(
        self, dependency: Dependency, inner: httpx.AsyncBaseTransport, fetch: Callable[[], Awaitable[Token]]
    ) -> None:
        self._dependency = dependency
        self._inner = inner
        self._fetch = fetch
        self._tokens = Tokens(self._fetch_hidden)
        self._latest: deque[Secret] = deque(maxlen=2)  # a late answer may show the one before the last

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request.

        Raises:
            SignInError: There is no token; what was sent, if anything was, had no effect.
        """
        # Checked before sending: a body that is streamed cannot be sent again.
        is_repeatable = isinstance(request.stream, httpx.ByteStream)
        token = await self._tokens.current()
        response = await self._send(request, token)
        if response.status_code != _UNAUTHORIZED:
            return response
        progress = request.extensions.get(PROGRESS) or SendProgress()
        progress.connecting = progress.sent = False  # a 401 says that nothing took effect
        try:
            newer = await self._tokens.after_refusal(token)
        except BaseException:
            await response.aclose()
            raise
        if newer is None or not is_repeatable:
            return response
        await response.aclose()
        return await self._send(request, newer)

    async def _send(self, request: httpx.Request, token: Token) -> httpx.Response:
        assert self._dependency.auth is not None  # noqa: S101 - else it is not signed
        request.headers[self._dependency.auth.header] = token.value.reveal()
        return await self._inner.handle_async_request(request)

    async def _fetch_hidden(self) -> Token:
        token = await self._fetch()
        self._latest.append(token.value)
        hide_tokens(self._dependency, self._latest)
        return token

    @override
    async def aclose(self) -> None:
        """Close the connections."""
        self._tokens.close()
        await self._inner.aclose()


_REFUSED: Final = re.compile(r"_ALERT_(?:\w*CERTIFICATE|UNKNOWN_CA|ACCESS_DENIED)")
"""How OpenSSL names the alerts of TLS by which a server refuses a certificate."""


class CertifiedTransport(httpx.AsyncBaseTransport):
    """Sends requests over connections that show a certificate."""

    def __init__(self, name: str, inner: httpx.AsyncBaseTransport) -> None:
        self._name = name
        self._inner = inner

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request.

        Raises:
            CredentialRefusedError: The server refuses the certificate; it has read nothing of the request.
        """
        try:
            return await self._inner.handle_async_request(request)
        except httpx.TransportError as error:
            if _REFUSED.search(str(error)) is None:
                raise
            raise CredentialRefusedError(f"{self._name} refuses the app's certificate: {error}") from error

    @override
    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


def show_certificate(dependency: Dependency, context: ssl.SSLContext) -> None:
    """Let connections to a dependency show the app's certificate, where it has one.

    Raises:
        SignInError: Its files cannot be read any more.
    """
    if (table := keys_of(dependency).tls) is None:
        return
    try:
        table.add_to(context)
    except OSError as error:
        raise SignInError(f"the certificate for {dependency.name} cannot be read: {error}") from error
