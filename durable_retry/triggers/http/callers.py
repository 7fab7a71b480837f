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
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from hashlib import sha256
from typing import Any, Final

import azure.functions as func

from durable_retry.engine.base.validation import Problem
from durable_retry.settings.catalogue import AUTH_ENABLED, CALLER_KEYS, OPERATOR_ROLES, READER_ROLES
from durable_retry.settings.setting import SettingsError

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
_KEY_ENTRY: Final = re.compile(r"([A-Za-z0-9_.\-]{1,64})=(reader|operator):([0-9a-f]{64})")


class Role(StrEnum):
    """What a caller may do.

    A reader may read; an operator may also change things; `none` may do neither.
    """

    NONE = "none"
    READER = "reader"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class CallerKey:
    """A function key that the settings name."""

    name: str
    role: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerSettings:
    """How callers are recognised.

    Attributes:
        trusts_principals: Whether the platform authenticates people, and so sets their headers itself.
        operators: Values of role claims, or `claim=value`, that make an operator.
        readers: The same for a reader.
        keys: By the SHA-256 of a function key, 64 hexadecimal digits.
    """

    trusts_principals: bool = False
    operators: frozenset[str] = frozenset()
    readers: frozenset[str] = frozenset()
    keys: Mapping[str, CallerKey] = field(default_factory=dict)

    def role_of(self, claims: frozenset[str]) -> Role:
        """Return the role of a person.

        Without settings everybody is an operator; with those of operators alone all others are readers.
        """
        if not self.operators and not self.readers:
            return Role.OPERATOR
        if claims & self.operators:
            return Role.OPERATOR
        is_reader = not self.readers or bool(claims & self.readers)
        return Role.READER if is_reader else Role.NONE


def read_caller_settings(environ: Mapping[str, str]) -> CallerSettings:
    """Read the settings.

    Raises:
        SettingsError: Lists every setting with an invalid value.
    """
    problems: list[Problem] = []
    settings = CallerSettings(
        trusts_principals=AUTH_ENABLED.get(environ).lower() == "true",
        operators=_names(OPERATOR_ROLES.get(environ)),
        readers=_names(READER_ROLES.get(environ)),
        keys=dict(_keys(environ, problems)),
    )
    if (settings.operators or settings.readers) and not settings.trusts_principals:
        detail = "takes effect with App Service authentication only: switch it on, or leave this empty"
        name = OPERATOR_ROLES.name if settings.operators else READER_ROLES.name
        problems.append(Problem(name, detail))
    if settings.readers and not settings.operators:
        detail = f"is needed beside {READER_ROLES.name}: nobody could change anything"
        problems.append(Problem(OPERATOR_ROLES.name, detail))
    if problems:
        raise SettingsError(tuple(problems))
    return settings


@cache
def caller_settings() -> CallerSettings | None:
    """Return this process's settings, read once; None where they say nothing about any caller.

    Raises:
        SettingsError: See `read_caller_settings`.
    """
    settings = read_caller_settings(os.environ)
    return settings if settings.trusts_principals or settings.keys else None


def _names(text: str) -> frozenset[str]:
    return frozenset(filter(None, (name.strip() for name in text.split(","))))


def _keys(environ: Mapping[str, str], problems: list[Problem]) -> Iterator[tuple[str, CallerKey]]:
    for number, text in enumerate(CALLER_KEYS.get(environ).split(), 1):
        found = _KEY_ENTRY.fullmatch(text)
        if found is None:
            # Without the value: somebody may have written the key itself.
            form = "name=reader:SHA256 or name=operator:SHA256, the key's SHA-256 in 64 hexadecimal digits"
            problems.append(Problem(CALLER_KEYS.name, f"entry {number} must be {form}"))
        else:
            yield found[3], CallerKey(found[1], Role(found[2]))


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request.

    Attributes:
        known_name: Of the person or the key; None when it is not known.
        role: What the caller may do.
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
    by_key = _by_key(settings, header(_KEY_HEADER) or request.params.get(_KEY_PARAMETER))
    if not settings.trusts_principals or (header(_ID) is None and header(_PRINCIPAL) is None):
        return by_key
    claims = frozenset(_claims(header(_PRINCIPAL)))
    name = header(_NAME) or header(_ID)
    # A person with a key that only reads does not change anything either.
    role = min(settings.role_of(claims), by_key.role, key=list(Role).index)
    return Caller(None if name is None else name[:_MAX_NAME_CHARS], role)


def _by_key(settings: CallerSettings, key: str | None) -> Caller:
    if not settings.keys or not key:
        return ANYBODY
    known = settings.keys.get(sha256(key.encode()).hexdigest())
    return ANYBODY if known is None else Caller(known.name, known.role)


def _claims(principal: str | None) -> Iterator[str]:
    """Give the values of role claims, and `claim=value` of every claim; none of what cannot be read."""
    document = _decoded(principal or "")
    claims = document.get("claims")
    role_claim = document.get("role_typ")
    for claim in claims if isinstance(claims, list) else []:
        if isinstance(claim, Mapping):
            kind, value = str(claim.get("typ")), str(claim.get("val"))
            yield f"{kind}={value}"
            if kind in _ROLE_CLAIMS or kind == role_claim:
                yield value


def _decoded(text: str) -> Mapping[str, Any]:
    try:
        document = json.loads(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return {}
    return document if isinstance(document, Mapping) else {}
