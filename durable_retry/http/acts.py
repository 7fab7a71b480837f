"""Reporting what the caller of a route did, for the activity."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import azure.functions as func

from durable_retry.engine.facts import PersonActed, TargetType
from durable_retry.http.callers import Caller
from durable_retry.telemetry.facts import report

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
    report(PersonActed(who.known_name, what, act.target, target_id, reason, dependency))


def _dependency_in(document: Mapping[str, Any]) -> str | None:
    about = (document, *(document.get(name) for name in _ABOUT))
    named = (each.get("dependency") for each in about if isinstance(each, dict))
    return next(filter(None, named), None)
