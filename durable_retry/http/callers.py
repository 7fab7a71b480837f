"""Who calls, and what the caller may do.

People come from App Service authentication ("Easy Auth"): it sets `X-MS-CLIENT-PRINCIPAL` and its siblings
and drops what a caller sent under these names. Where it is off, anybody can send these headers, and they are
not read.

The host checks function keys and does not give their names to Python. A key whose SHA-256 the settings hold
has a name and a role; any other key is an operator's without a name.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import azure.functions as func

from durable_retry.settings.callers import CallerSettings, Role

UNNAMED: Final = "api"
"""Stands for a caller that nobody named."""

_PRINCIPAL: Final = "x-ms-client-principal"
_NAME: Final = "x-ms-client-principal-name"
_ID: Final = "x-ms-client-principal-id"
_KEY_HEADER: Final = "x-functions-key"
_KEY_PARAMETER: Final = "code"

_ROLE_CLAIMS: Final = frozenset(
    {"roles", "role", "groups", "http://schemas.microsoft.com/ws/2008/06/identity/claims/role"}
)
_MAX_NAME_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request.

    Attributes:
        known_name: The name of the person or the key; None when it is not known.
    """

    known_name: str | None = None
    role: Role = Role.OPERATOR

    @property
    def name(self) -> str:
        """The name; `api` when it is not known."""
        return self.known_name or UNNAMED


ANYBODY: Final = Caller()


def caller_of(request: func.HttpRequest, settings: CallerSettings) -> Caller:
    """Return who sent a request, as far as the settings recognise callers."""
    header: Callable[[str], str | None] = request.headers.get
    by_key = _caller_by_key(settings, header(_KEY_HEADER) or request.params.get(_KEY_PARAMETER))
    if not settings.trusts_principals or (header(_ID) is None and header(_PRINCIPAL) is None):
        return by_key
    claims = frozenset(_role_claims(header(_PRINCIPAL)))
    name = header(_NAME) or header(_ID)
    # A person with a key that only reads does not change anything either.
    role = settings.role_of(claims).within(by_key.role)
    return Caller(None if name is None else name[:_MAX_NAME_CHARS], role)


def _caller_by_key(settings: CallerSettings, key: str | None) -> Caller:
    if not settings.caller_keys or not key:
        return ANYBODY
    known = settings.caller_keys.get(sha256(key.encode()).hexdigest())
    return ANYBODY if known is None else Caller(known.name, known.role)


def _role_claims(principal: str | None) -> Iterator[str]:
    """Give the values of role claims, and `claim=value` of every claim; none of what cannot be read."""
    document = _decoded_principal(principal or "")
    claims = document.get("claims")
    role_claim = document.get("role_typ")
    for claim in claims if isinstance(claims, list) else []:
        if isinstance(claim, Mapping):
            kind, value = str(claim.get("typ")), str(claim.get("val"))
            yield f"{kind}={value}"
            if kind in _ROLE_CLAIMS or kind == role_claim:
                yield value


def _decoded_principal(text: str) -> Mapping[str, Any]:
    try:
        document = json.loads(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return {}
    return document if isinstance(document, Mapping) else {}
