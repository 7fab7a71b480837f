"""Who calls, what the caller may do, and reporting what the caller did, for the activity.

The host checks the first of several function keys and passes all of them on, joined by commas. The app cannot
see which one was accepted, and refuses a request with several. The feature `callers` says whose a key is.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, Final

import azure.functions as func

from durable_retry.base.names import Role
from durable_retry.http.answers import UnauthorizedError
from durable_retry.plugins import plugins
from durable_retry.rules.facts import PersonActed, TargetType
from durable_retry.runtime.deferred import imported
from durable_retry.telemetry.facts import report

UNNAMED: Final = "api"
"""Stands for a caller whose name is not known."""

_KEY_HEADER: Final = "x-functions-key"
_KEY_PARAMETER: Final = "code"
_JOINS: Final = ","
"""Stands between the values of a header or parameter that was sent twice; no key has it."""


def _count_none(_limit_key: str, _now: datetime) -> None:
    """Count nothing: the caller is not known."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request.

    Attributes:
        known_name: The name of the person or the key; None when it is not known.
        note_limit_key: Counts the limit key of a submission; raises `OverloadedError` for one too many.
    """

    known_name: str | None = None
    role: Role = Role.OPERATOR
    note_limit_key: Callable[[str, datetime], None] = field(default=_count_none, compare=False)

    @property
    def name(self) -> str:
        """The name; `api` when it is not known."""
        return self.known_name or UNNAMED


ANYBODY: Final = Caller()


def key_of(request: func.HttpRequest) -> str | None:
    """Return the function key of a request; None without one.

    Raises:
        UnauthorizedError: It has several, or one in the header and in the query.
    """
    in_header: str | None = request.headers.get(_KEY_HEADER)
    # As the host: a parameter's name may be written in any case.
    in_query = [value for name, value in request.params.items() if name.lower() == _KEY_PARAMETER]
    keys = in_query if in_header is None else [in_header, *in_query]
    if len(keys) > 1 or any(_JOINS in key for key in keys):
        raise UnauthorizedError(
            f"The request has more than one function key: send one, as {_KEY_HEADER} or as {_KEY_PARAMETER}."
        )
    return keys[0] if keys else None


type ReadCaller = Callable[[func.HttpRequest, str | None], Caller]
"""Returns who sent a request with a function key; raises `UnauthorizedError` where that is not known."""


def caller_of(request: func.HttpRequest) -> Caller:
    """Return who sent a request.

    Raises:
        UnauthorizedError: It has several keys, or one that is not known.
    """
    key, read = key_of(request), _reader()()
    return ANYBODY if read is None else read(request, key)


@cache
def _reader() -> Callable[[], ReadCaller | None]:
    return next((imported(plugin.callers) for plugin in plugins() if plugin.callers), lambda: None)


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


def report_act(act: Act, called: Mapping[str, Any], in_path: str | None, answer: func.HttpResponse) -> None:
    """Report an act that was accepted.

    Args:
        called: What the route's function was called with, by name.
        in_path: The first parameter of the path.
    """
    document = json.loads(answer.get_body())
    target_id = in_path if act.id_in_answer is None else document.get(act.id_in_answer)
    if target_id is None:
        return
    body = called.get("body")
    who: Caller = called["who"]
    what = act.what if isinstance(act.what, str) else act.what(body)
    reason = next((text for name in ("reason", "note", "text") if (text := getattr(body, name, None))), None)
    dependency = called.get("dependency") or _dependency_in(document) or getattr(body, "dependency", None)
    limit_key = getattr(body, "limit_key", None)
    report(PersonActed(who.name, what, act.target, target_id, reason, dependency, limit_key))


def _dependency_in(document: Mapping[str, Any]) -> str | None:
    about = (document, *(document.get(name) for name in _ABOUT))
    named = (part.get("dependency") for part in about if isinstance(part, dict))
    return next(filter(None, named), None)
