"""What gives tokens: a token service of OAuth, and the identity of the app."""

import asyncio
import base64
import os
from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import quote_plus, urlencode

import httpx
from azure.core.exceptions import AzureError
from pydantic import BaseModel, Field, ValidationError

from durable_retry.attempt.excerpts import error_line
from durable_retry.attempt.http_client import (
    BoundedResponse,
    CredentialRefusedError,
    Request,
    SignInError,
    send,
)
from durable_retry.attempt.http_pool import SendProgress
from durable_retry.base.names import Category
from durable_retry.base.text import failing_text, outcome_text, seconds_text
from durable_retry.features.credentials.tables import OAuthTable
from durable_retry.features.credentials.tokens import Token, bearer
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.retry.classify import classify_status
from durable_retry.runtime import clock
from durable_retry.settings.storage_account import ManagedIdentity, make_credential
from durable_retry.storage.clients import run_in_pool

_LIMIT_BYTES: Final = 64 * 1024
_ASSUMED_SECONDS: Final = 300.0
"""The assumed life of a token whose service does not say it; where that is too long, a 401 ends it."""
_UNKNOWN_CLIENT: Final = frozenset({400, 401})
_TEMPORARY: Final = frozenset({Category.TRANSIENT, Category.THROTTLED})


class _Answer(BaseModel):
    """What a token service answers (RFC 6749, section 5.1)."""

    access_token: Annotated[str, Field(pattern=r"^[\x21-\x7e]+$")]
    expires_in: Annotated[float, Field(ge=0, allow_inf_nan=False)] = _ASSUMED_SECONDS


class _Refusal(BaseModel):
    """What a token service answers with an error (section 5.2)."""

    error: Annotated[str, Field(pattern=r"^[A-Za-z_]{1,60}$")]


@dataclass(slots=True)
class TokenService:
    """A token service of OAuth.

    Attributes:
        service: The service as a dependency, to which requests are sent.
        seconds: How long it may take to answer.
        in_body: Whether it takes the client's secret in the body: some take it there alone, although by RFC
            6749 (2.3.1) all take it in the header.
    """

    service: Dependency
    oauth: OAuthTable
    seconds: float
    in_body: bool = False

    async def fetch(self) -> Token:
        """Fetch a token.

        Raises:
            CredentialRefusedError: The service does not take the client, its secret or the scope.
            SignInError: It cannot give one at present.
        """
        fetched_at, answer = clock.monotonic_seconds(), await self._request_token()
        if answer.status_code in _UNKNOWN_CLIENT:
            self.in_body = not self.in_body
            fetched_at, answer = clock.monotonic_seconds(), await self._request_token()
        category = classify_status(answer.status_code)
        if category is not None:
            says = outcome_text(answer.status_code, _error_in(answer.body))
            error = SignInError if category in _TEMPORARY else CredentialRefusedError
            raise error(f"the {self.service.name} {failing_text(says)}")
        try:
            token = _Answer.model_validate_json(answer.body)
        except ValidationError:
            # `from None`: the cause would show the answer.
            raise SignInError(f"the {self.service.name} answers without a token") from None
        return bearer(token.access_token, token.expires_in, fetched_at)

    async def _request_token(self) -> BoundedResponse:
        form = {"grant_type": "client_credentials"}
        if self.oauth.scope:
            form["scope"] = self.oauth.scope
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        client = (self.oauth.client_id, self.oauth.client_secret.reveal())
        if self.in_body:
            form |= dict(zip(("client_id", "client_secret"), client, strict=True))
        else:
            pair = ":".join(map(quote_plus, client))
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        request = Request(method="POST", path="", headers=headers, body=urlencode(form))
        try:
            return await send(
                self.service,
                request,
                seconds=self.seconds,
                limit_bytes=_LIMIT_BYTES,
                progress=SendProgress(),
            )
        except (httpx.HTTPError, OSError, ValueError) as error:
            line = error_line(error, self.service)
            raise SignInError(f"the {self.service.name} {failing_text(line)}") from error


def _error_in(body: bytes) -> str:
    try:
        return _Refusal.model_validate_json(body).error
    except ValidationError:
        return ""


async def fetch_by_identity(scope: str, client_id: str, seconds: float) -> Token:
    """Fetch a token of the app's managed identity; outside Azure, of who is signed in on the machine.

    Raises:
        SignInError: There is none at present.
    """
    in_azure = "IDENTITY_ENDPOINT" in os.environ
    identity = ManagedIdentity(client_id) if in_azure else None
    now, fetched_at = clock.now().timestamp(), clock.monotonic_seconds()

    def get_token() -> tuple[str, float]:
        # A new credential: an old one has a cache, from which it would return a token that was refused.
        with make_credential(identity) as credential:
            token = credential.get_token(scope)
        return token.token, token.expires_on - now

    try:
        async with asyncio.timeout(seconds):
            text, good_for = await run_in_pool(get_token)
    except TimeoutError:
        raise SignInError(f"the app's identity has no token within {seconds_text(seconds)}") from None
    except (AzureError, ValueError) as error:
        line = str(error).strip().partition("\n")[0]
        raise SignInError(f"the app's identity has no token: {line}") from error
    return bearer(text, good_for, fetched_at)
