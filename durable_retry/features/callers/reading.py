"""Who sent a request: a person, a named key, or both.

People come from App Service authentication ("Easy Auth"): it sets `X-MS-CLIENT-PRINCIPAL` and its siblings
and drops what a caller sent under these names. Where it is off, anybody can send these headers, and they are
not read.

The host checks function keys and does not give their names to Python. Where `CALLER_KEYS` lists keys by their
SHA-256, a listed key has a name and a role, and any other is refused.
"""

import base64
import binascii
import json
import os
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from hashlib import sha256
from typing import Any, Final

import azure.functions as func

from durable_retry.base.names import Role
from durable_retry.features.callers.limit_keys import LimitKeysOfCallers
from durable_retry.features.callers.settings import CallerSettings
from durable_retry.http.answers import UnauthorizedError
from durable_retry.http.callers import ANYBODY, Caller, ReadCaller

_PRINCIPAL: Final = "x-ms-client-principal"
_NAME: Final = "x-ms-client-principal-name"
_ID: Final = "x-ms-client-principal-id"

_ROLE_CLAIMS: Final = frozenset(
    {"roles", "role", "groups", "http://schemas.microsoft.com/ws/2008/06/identity/claims/role"}
)
_MAX_NAME_CHARS: Final = 200


@cache
def caller_reader() -> ReadCaller | None:
    """Return the function that finds out who sends a request, by this process's settings, read once.

    It is None where they say nothing about any caller.
    """
    settings = CallerSettings.read(os.environ)
    limit_keys = LimitKeysOfCallers(settings.http_limit_keys)
    return partial(read_caller, settings, limit_keys) if settings.say_something else None


def read_caller(
    settings: CallerSettings, limit_keys: LimitKeysOfCallers, request: func.HttpRequest, key: str | None
) -> Caller:
    """Return who sent a request with a function key; UnauthorizedError where the key is not listed."""
    person = _signed_in_person(request, settings)
    by_key = _caller_by_key(settings, key, is_person=person is not None)
    # A person who sends a reader's key may not change anything either.
    role = by_key.role if person is None else role_within(person.role, by_key.role)
    return known_caller((person or by_key).known_name, role, limit_keys)


def known_caller(name: str | None, role: Role, limit_keys: LimitKeysOfCallers) -> Caller:
    """Return a caller whose limit keys are counted, where the name is known."""
    return Caller(name, role) if name is None else Caller(name, role, partial(limit_keys.note, name))


def role_within(role: Role, other: Role) -> Role:
    """Return the role that allows what both roles allow; a caller and a reader have nothing in common."""
    if Role.OPERATOR in {role, other}:
        return role if other is Role.OPERATOR else other
    return role if role is other else Role.NONE


def _signed_in_person(request: func.HttpRequest, settings: CallerSettings) -> Caller | None:
    header: Callable[[str], str | None] = request.headers.get
    if not settings.trusts_principals or (header(_ID) is None and header(_PRINCIPAL) is None):
        return None
    claims = frozenset(_role_claims(header(_PRINCIPAL)))
    name = header(_NAME) or header(_ID)
    return Caller(None if name is None else name[:_MAX_NAME_CHARS], settings.role_of(claims))


def _caller_by_key(settings: CallerSettings, key: str | None, *, is_person: bool) -> Caller:
    if not settings.caller_keys or (is_person and not key):
        return ANYBODY
    if not key:
        raise UnauthorizedError("The request has no function key.")
    caller = settings.caller_keys.get(sha256(key.encode()).hexdigest())
    if caller is None:
        raise UnauthorizedError(f"The function key is not listed in {settings.name_of('caller_keys')}.")
    return Caller(caller.name, caller.role)


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
