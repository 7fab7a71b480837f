"""Who calls, what the caller may do, and reporting what the caller did, for the activity.

People come from App Service authentication ("Easy Auth"): it sets `X-MS-CLIENT-PRINCIPAL` and its siblings
and drops what a caller sent under these names. Where it is off, anybody can send these headers, and they are
not read.

The host checks function keys and does not give their names to Python. Where `CALLER_KEYS` lists keys by their
SHA-256, a listed key has a name and a role, and any other is nobody's.

The host looks at the first of several keys and hands all of them on, joined by commas; which one it let in
cannot be told here. So a request has one key, or is refused.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import azure.functions as func

from durable_retry.http.answers import UnauthorizedError
from durable_retry.rules.facts import PersonActed, TargetType
from durable_retry.settings.callers import CallerSettings, Role
from durable_retry.telemetry.facts import report

UNNAMED: Final = "api"
"""Stands for a caller that nobody named."""

_PRINCIPAL: Final = "x-ms-client-principal"
_NAME: Final = "x-ms-client-principal-name"
_ID: Final = "x-ms-client-principal-id"
_KEY_HEADER: Final = "x-functions-key"
_KEY_PARAMETER: Final = "code"
_JOINS: Final = ","
"""Stands between the values of a header or parameter that was sent twice; no key has it."""

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


def key_of(request: func.HttpRequest) -> str | None:
    """Return the function key of a request; None without one.

    Raises:
        UnauthorizedError: It has several. The same one in the header and in the query is one.
    """
    in_header: str | None = request.headers.get(_KEY_HEADER)
    # As the host: a parameter's name may be written in any case.
    in_query = [value for name, value in request.params.items() if name.lower() == _KEY_PARAMETER]
    keys = in_query if in_header is None else [in_header, *in_query]
    if len(in_query) > 1 or len(set(keys)) > 1 or any(_JOINS in key for key in keys):
        raise UnauthorizedError(
            f"The request has more than one function key: send one, as {_KEY_HEADER} or as {_KEY_PARAMETER}."
        )
    return keys[0] if keys else None


def caller_of(request: func.HttpRequest, settings: CallerSettings | None) -> Caller:
    """Return who sent a request.

    Args:
        settings: None where they say nothing about any caller.

    Raises:
        UnauthorizedError: It has several keys, or one that is nobody's.
    """
    key = key_of(request)
    if settings is None:
        return ANYBODY
    person = _signed_in_person(request, settings)
    by_key = _caller_by_key(settings, key, is_person=person is not None)
    # A person with a key that only reads does not change anything either.
    return by_key if person is None else Caller(person.known_name, person.role.within(by_key.role))


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


# The members of an answer with what it is about: an operation, the sample of a cause, a bulk action's filter.
_ABOUT: Final = ("operation", "sample", "filter")


@dataclass(frozen=True, slots=True)
class Act:
    """What a caller of a route does, for the activity.

    Attributes:
        what: Words such as `archived the dead letter`, or a function of the body that gives them.
        id_in_answer: The member of the answer that has the target's id; an answer without it, such as that of
            a dry run, is no act. None where the first parameter of the path is the id.
    """

    what: str | Callable[[Any], str]
    target: TargetType
    id_in_answer: str | None = None


def report_act(act: Act, given: Mapping[str, Any], in_path: str | None, answer: func.HttpResponse) -> None:
    """Report an act that was accepted.

    Args:
        given: What the route's function was called with, by name.
        in_path: The first parameter of the path.
    """
    document = json.loads(answer.get_body())
    target_id = in_path if act.id_in_answer is None else document.get(act.id_in_answer)
    if target_id is None:
        return
    body = given.get("body")
    who: Caller = given["who"]
    what = act.what if isinstance(act.what, str) else act.what(body)
    reason = next((text for name in ("reason", "note", "text") if (text := getattr(body, name, None))), None)
    dependency = given.get("dependency") or _dependency_in(document) or getattr(body, "dependency", None)
    limit_key = getattr(body, "limit_key", None)
    report(PersonActed(who.name, what, act.target, target_id, reason, dependency, limit_key))


def _dependency_in(document: Mapping[str, Any]) -> str | None:
    about = (document, *(document.get(name) for name in _ABOUT))
    named = (part.get("dependency") for part in about if isinstance(part, dict))
    return next(filter(None, named), None)
