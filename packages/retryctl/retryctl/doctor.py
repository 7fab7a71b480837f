"""The command `doctor`: goes through the parts that an operation needs, and names the first that fails.

With `--stuck` it lists what should have gone on and has not.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, Final

from rich.text import Text

from retryctl import errors
from retryctl.api import Api
from retryctl.commands import Command, Given
from retryctl.errors import ApiError, CommandError, UnreachableError
from retryctl.output import Rows, Screen, printable, span, state
from retryctl.watching import monotonic_seconds, now, pause

LEAST_HOST: Final = (4, 1038)
"""An older Functions host refuses the names of bindings that the Durable SDK gives."""

LEAST_CORE_TOOLS: Final = "4.14"
"""The first version of Core Tools that brings such a host."""

_LOOK_EVERY_SECONDS: Final = 0.5

_NOT_MOVED: Final = "restart the host; terminate it if it still does not"

REMEDIES: Final[Mapping[str, str]] = {
    "host": (
        f"start it where --url says; update Azure Functions Core Tools to {LEAST_CORE_TOOLS} or later, "
        "or the image of the host"
    ),
    "storage": (
        "look at AzureWebJobsStorage: the account must be there, and an identity needs the roles Storage "
        "Blob Data Owner, Storage Queue Data Contributor and Storage Table Data Contributor"
    ),
    "queues": "run `retryctl setup`, which makes it: a trigger does not make its queue",
    "packages": (
        "install what is missing where the host runs Python: the app's requirements, and the extras that its "
        "settings ask for, such as durable-retry[telemetry]"
    ),
    "start": (
        "the task hub runs no orchestration: look in the host's log for the Durable extension (bundle 4.38 "
        "or later in host.json) and for functions that were not indexed"
    ),
    "entity": (
        'set "entityMessageReorderWindowInMinutes": 0 under extensions.durableTask in host.json: with '
        "another value Azure Storage drops every entity call of a Python orchestrator"
    ),
    "timer": (
        "the messages of timers do not come: look for another app on this task hub (hubName in host.json), "
        "and for a clock that is wrong"
    ),
    "activity": (
        "look in the host's log for why it failed; where it was not reached, nobody reads the work-item "
        "queue: look for another app on this task hub (hubName in host.json)"
    ),
    "index": "the app cannot write its tables: its identity needs the role Storage Table Data Contributor",
    "stuck": f"`retryctl doctor --stuck` lists them; {_NOT_MOVED}",
    "needed": (
        "deploy it again; say `was` in the table of a dependency that was renamed; or cancel what waits, "
        "which `retryctl doctor --stuck` lists"
    ),
    "roles": "give the key of an operator (--function-key): a diagnosis starts an orchestration",
}
"""What to do when a part fails."""

_ORDER: Final = ("storage", "queues", "packages", "start", "entity", "timer", "activity", "index", "stuck")
"""Parts that the app's diagnosis has."""


@dataclass(frozen=True, slots=True)
class Part:
    """What was seen of one part."""

    name: str
    ok: bool
    detail: str


LATE_AFTER: Final = timedelta(minutes=2)
"""Timers and starts of a busy app come later than they are due, but not by so much."""

QUIET_AFTER: Final = timedelta(minutes=10)
"""A handler's time limit is not known here; the host ends it after `functionTimeout`, five minutes."""

_STUCK: Final[Mapping[str, str]] = {
    "pending": "its start is queued or was lost: submit it again under its key, which starts it once",
    "running": (
        "its attempt is queued, or does not end: where none ends, start the app's workers anew, which "
        "repeats it under its number"
    ),
}
_WAITS: Final = (
    *("scheduled", "paused"),
    *("waiting_retry", "waiting_throttle", "waiting_circuit", "waiting_order"),
)
_MOST_LOOKED_AT: Final = 1_000
_WAITS_TOO_LONG: Final = "its timer was lost: retryctl retry-now (a paused one: resume) lets it go on"


def _list_stuck(api: Api, screen: Screen) -> int:
    """List what should have gone on; exit code 1 where there is some."""
    limits, handlers = _limits(api), _handlers(api)
    late = {
        each["instance_id"]: each
        for status in (*_STUCK, *_WAITS)
        for each in _late(api, status, limits, handlers)
    }
    for one in api.ask("GET diagnoses/stuck")["items"]:
        given_up = _row(
            one["instance_id"],
            datetime.fromisoformat(one["since"]),
            f"it was woken and does not go on: {_NOT_MOVED}",
        )
        late[one["instance_id"]] = {
            "status": one["orchestration"],
            **late.get(one["instance_id"], {}),
            **given_up,
        }
    found = sorted(late.values(), key=lambda each: str(each["due_at"]))
    columns = "instance_id:what status due_at late dependency key why:what_to_do"
    screen.show({"items": found}, lambda _: [Rows(found, columns, empty="nothing is stuck")], "instance_id")
    return errors.FAILED if found else errors.OK


def _limits(api: Api) -> dict[str, timedelta]:
    """Return how long an attempt may take, by dependency and by what a dependency was called before."""
    return {
        name: timedelta(seconds=each["timeouts"]["attempt_seconds"])
        for each in api.ask("GET dependencies")["items"]
        for name in (each["name"], *each["was"])
    }


def _handlers(api: Api) -> set[str]:
    return {each["name"] for each in api.ask("GET handlers")["items"]}


def _row(instance_id: str, due_at: datetime, why: str) -> dict[str, Any]:
    return {
        "instance_id": instance_id,
        "due_at": due_at.isoformat().replace("+00:00", "Z"),
        "late": span((now() - due_at).total_seconds()),
        "why": why,
    }


def _late(
    api: Api, status: str, limits: Mapping[str, timedelta], handlers: Collection[str]
) -> Iterator[dict[str, Any]]:
    for one in api.pages("operations", {"status": status}, None)["items"]:
        names = {name: one[name] for name in ("status", "dependency", "key")}
        due_at, missing = _due_at(one, limits), _missing(one, limits, handlers)
        if missing is not None:
            yield names | _row(one["operation_id"], datetime.fromisoformat(one["updated_at"]), missing)
        elif due_at is not None and now() - due_at > LATE_AFTER:
            yield names | _row(one["operation_id"], due_at, _STUCK.get(status, _WAITS_TOO_LONG))


def _missing(
    operation: Mapping[str, Any], dependencies: Collection[str], handlers: Collection[str]
) -> str | None:
    """Return what an operation waits for that the app does not have; None where it has all."""
    handler = operation.get("handler")
    if handler is not None and handler not in handlers:
        return f"handler {handler} is not registered: deploy it again, or cancel"
    if operation["dependency"] not in dependencies:
        return f"dependency {operation['dependency']} is not configured: put it back, or cancel"
    return None


def _due_at(operation: Mapping[str, Any], limits: Mapping[str, timedelta]) -> datetime | None:
    """Return when something should have happened to an operation; None where nobody can say.

    The app's `watch` looks by the same instants; `limits` are those of an attempt, by dependency.
    """
    if operation["status"] == "pending":
        return datetime.fromisoformat(operation["created_at"])
    if operation["status"] == "running":
        limit = QUIET_AFTER if "handler" in operation else limits.get(operation["dependency"], QUIET_AFTER)
        return datetime.fromisoformat(operation["updated_at"]) + limit
    at = operation["next_attempt_at"]
    if operation["status"] == "waiting_order" and "waits" in operation:
        at = operation["waits"][-1]["until"]
    return None if at is None else datetime.fromisoformat(at)


def _doctor(api: Api, given: Given, screen: Screen) -> int:
    """Check a running app part by part; stop at the first that fails, and say what to do."""
    if given.pop("stuck", False):
        return _list_stuck(api, screen)
    seen: list[Part] = []
    for part in _parts(api, given.get("master_key"), given.get("part_seconds", 60.0)):
        seen.append(part)
        word = state("ok" if part.ok else "FAILED")
        screen.lines([Text.assemble(f"{part.name:10}", word, " " * (8 - len(word)), printable(part.detail))])
        if not part.ok:
            break
    remedy = None if seen[-1].ok else REMEDIES[seen[-1].name]
    document = {"ok": remedy is None, "parts": [asdict(part) for part in seen], "remedy": remedy}
    screen.show(document, lambda _: ["every part works" if remedy is None else f"what to do: {remedy}"])
    return errors.OK if remedy is None else errors.FAILED


def _parts(api: Api, master_key: str | None, part_seconds: float) -> Iterator[Part]:
    """Yield the parts in order; whoever asks stops at the first that fails."""
    try:
        yield _host(api, master_key)
    except UnreachableError as error:
        yield Part("host", ok=False, detail=str(error))
        return
    try:
        started = api.ask("POST diagnoses")
    except CommandError as error:
        yield Part(_reason_of(api, error), ok=False, detail=str(error))
        return
    document: dict[str, Any] = {}
    for name in _ORDER:
        document, part = _until_reached(api, started["diagnosis_id"], name, part_seconds)
        yield part
    yield _needed(api)
    yield Part("roles", ok=True, detail=f"{document['role']}, as {document['caller']}")


def _needed(api: Api) -> Part:
    """Look whether the newest of those that wait for a retry wait for what the app does not have."""
    limits, handlers = _limits(api), _handlers(api)
    waiting = api.pages("operations", {"status": "waiting_retry"}, _MOST_LOOKED_AT)["items"]
    missing = Counter(filter(None, (_missing(each, limits, handlers) for each in waiting)))
    detail = "; ".join(f"{why} (operations: {count})" for why, count in missing.items())
    return Part("needed", ok=not missing, detail=detail)


def _reason_of(api: Api, error: CommandError) -> str:
    """Return the part that keeps the app from starting a diagnosis."""
    if isinstance(error, ApiError):
        return "roles" if error.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN} else "start"
    with suppress(UnreachableError):
        if not api.health()["parts"]["storage"]["healthy"]:
            return "storage"
    return "start"


def _host(api: Api, master_key: str | None) -> Part:
    status = api.host_status(master_key)
    if status is None:
        return Part("host", ok=True, detail="version not known: /admin takes the master key (--master-key)")
    text, details = str(status.get("version", "")), str(status.get("versionDetails", ""))
    if details.startswith("onebox"):
        return Part("host", ok=True, detail=details)
    found = re.match(r"(\d+)\.(\d+)", text)
    if found is None:
        return Part("host", ok=True, detail=f"version {text!r} cannot be read")
    is_new_enough = (int(found[1]), int(found[2])) >= LEAST_HOST
    least = "" if is_new_enough else f", and {'.'.join(map(str, LEAST_HOST))} is the least"
    return Part("host", ok=is_new_enough, detail=f"version {text}{least}")


def _until_reached(api: Api, diagnosis_id: str, name: str, seconds: float) -> tuple[dict[str, Any], Part]:
    """Look until a part works or fails, for so long."""
    end, document = monotonic_seconds() + seconds, dict[str, Any]()
    while True:
        try:
            document, trouble = api.ask("GET diagnoses/{id}", {"id": diagnosis_id}), ""
        except CommandError as error:
            trouble = f": {error}"
        found = next((each for each in document.get("parts", ()) if each["name"] == name), None)
        if not trouble and found is not None and found["state"] != "waiting":
            return document, Part(name, ok=found["state"] == "ok", detail=found["detail"] or "")
        if monotonic_seconds() >= end:
            return document, Part(name, ok=False, detail=f"not reached within {seconds:g} s{trouble}")
        pause(_LOOK_EVERY_SECONDS)


COMMANDS: Final = (
    Command(
        "doctor",
        "check a running app part by part, and name the first that fails with what to do",
        _doctor,
        "app_url master_key part_seconds stuck",
    ),
)
