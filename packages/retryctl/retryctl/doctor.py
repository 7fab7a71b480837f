"""The commands `doctor` and `setup`: find out which part of the app fails, and make what it lacks.

`doctor` goes through the parts that an operation needs, and names the first that fails; with `--stuck` it
lists what should have gone on and has not.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from http import HTTPStatus
from operator import itemgetter
from typing import Any, Final, NamedTuple

from rich.text import Text

from retryctl import clock, errors
from retryctl.api import FOREIGN, Api
from retryctl.commands import Ask, Command, Given
from retryctl.errors import ApiError, CommandError, UnreachableError
from retryctl.output import Lines, Rows, Screen, fill, span, state

LEAST_HOST: Final = (4, 1038)
"""An older Functions host refuses the names of bindings that the Durable SDK gives."""

LEAST_CORE_TOOLS: Final = "4.14"
"""The first version of Core Tools that brings such a host."""

_LOOK_EVERY_SECONDS: Final = 0.5

_NOT_MOVED: Final = "restart the host; terminate it if it still does not"

REMEDIES: Final[Mapping[str, str]] = {
    "host": (
        "start it where --url says, and mend what it names; "
        f"update Azure Functions Core Tools to {LEAST_CORE_TOOLS} or later, or the image of the host"
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


class Part(NamedTuple):
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
    late = {each["instance_id"]: each for each in _late_operations(api)}
    for one in api.ask("GET diagnoses/stuck")["items"]:
        instance_id, since = one["instance_id"], datetime.fromisoformat(one["since"])
        known = {"status": one["orchestration"]} | late.get(instance_id, {})
        late[instance_id] = known | _row(instance_id, since, f"it was woken and does not go on: {_NOT_MOVED}")
    found = sorted(late.values(), key=itemgetter("due_at"))
    columns = "instance_id:what status due_at late dependency key why:what_to_do"
    screen.show({"items": found}, lambda _: [Rows(found, columns, empty="nothing is stuck")], "instance_id")
    return errors.FAILED if found else errors.OK


def _late_operations(api: Api) -> Iterator[dict[str, Any]]:
    app = _App(api)
    for status in (*_STUCK, *_WAITS):
        for one in api.pages("operations", {"status": status}, None)["items"]:
            names = {name: one[name] for name in ("status", "dependency", "key")}
            due_at = app.due_at(one)
            if missing := app.missing(one):
                yield names | _row(one["operation_id"], datetime.fromisoformat(one["updated_at"]), missing)
            elif due_at is not None and clock.now() - due_at > LATE_AFTER:
                yield names | _row(one["operation_id"], due_at, _STUCK.get(status, _WAITS_TOO_LONG))


def _row(instance_id: str, due_at: datetime, why: str) -> dict[str, Any]:
    late, text = span((clock.now() - due_at).total_seconds()), due_at.isoformat().replace("+00:00", "Z")
    return {"instance_id": instance_id, "due_at": text, "late": late, "why": why}


class _App:
    """What an app has that operations wait for; how long an attempt may take, by dependency."""

    def __init__(self, api: Api) -> None:
        self._limits = {
            name: timedelta(seconds=each["timeouts"]["attempt_seconds"])
            for each in api.ask("GET dependencies")["items"]
            for name in (each["name"], *each["was"])
        }
        self._handlers = {each["name"] for each in api.ask("GET handlers")["items"]}

    def missing(self, operation: Mapping[str, Any]) -> str | None:
        """Return what an operation waits for that the app does not have; None where it has all."""
        handler, dependency = operation.get("handler"), operation["dependency"]
        if handler is not None and handler not in self._handlers:
            return f"handler {handler} is not registered: deploy it again, or cancel"
        if dependency not in self._limits:
            return f"dependency {dependency} is not configured: put it back, or cancel"
        return None

    def due_at(self, operation: Mapping[str, Any]) -> datetime | None:
        """Return when something should have happened, as for the app's `watch`; None where nobody can say."""
        at, more = operation["next_attempt_at"], timedelta()
        if operation["status"] == "pending":
            at = operation["created_at"]
        elif operation["status"] == "running":
            at, more = operation["updated_at"], QUIET_AFTER
            if "handler" not in operation:
                more = self._limits.get(operation["dependency"], QUIET_AFTER)
        elif operation["status"] == "waiting_order" and "waits" in operation:
            at = operation["waits"][-1]["until"]
        return None if at is None else datetime.fromisoformat(at) + more


def _doctor(api: Api, given: Given, screen: Screen) -> int:
    """Check a running app part by part; stop at the first that fails, and say what to do."""
    if given.pop("stuck", False):
        return _list_stuck(api, screen)
    seen: list[Part] = []
    for part in _parts(api, given.get("master_key"), given.get("part_seconds", 60.0)):
        seen.append(part)
        word = state("ok" if part.ok else "FAILED")
        screen.lines([Text.assemble(f"{part.name:10}", word, " " * (8 - len(word)), part.detail)])
        if not part.ok:
            break
    remedy = None if seen[-1].ok else REMEDIES[seen[-1].name]
    document = {"ok": remedy is None, "parts": [part._asdict() for part in seen], "remedy": remedy}
    screen.show(document, lambda _: ["every part works" if remedy is None else f"what to do: {remedy}"])
    return errors.OK if remedy is None else errors.FAILED


def _parts(api: Api, master_key: str | None, part_seconds: float) -> Iterator[Part]:
    """Yield the parts in order; whoever asks stops at the first that fails."""
    try:
        yield _host(api, master_key)
    except CommandError as error:
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
    app = _App(api)
    waiting = api.pages("operations", {"status": "waiting_retry"}, _MOST_LOOKED_AT)["items"]
    missing = Counter(filter(None, map(app.missing, waiting)))
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
    if "state" not in status:
        return Part("host", ok=False, detail=FOREIGN)
    if status["state"] == "Error":
        named = map(str, status.get("errors", ()))
        return Part("host", ok=False, detail="; ".join(["it is in the state Error", *named]))
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
    end, document = clock.monotonic_seconds() + seconds, dict[str, Any]()
    while True:
        try:
            document, trouble = api.ask("GET diagnoses/{id}", {"id": diagnosis_id}), ""
        except CommandError as error:
            trouble = f": {error}"
        found = next((each for each in document.get("parts", ()) if each["name"] == name), None)
        if not trouble and found is not None and found["state"] != "waiting":
            return document, Part(name, ok=found["state"] == "ok", detail=found["detail"] or "")
        if clock.monotonic_seconds() >= end:
            return document, Part(name, ok=False, detail=f"not reached within {seconds:g} s{trouble}")
        clock.pause(_LOOK_EVERY_SECONDS)


def _made(document: Any) -> Lines:
    """Yield what the app made, what was there, and what it may not make."""
    for item in document["items"]:
        padded = " " * (9 - len(item["state"]))
        yield fill(f"{item['kind']:6} {{state}}{padded}{{name}}[  {{detail}}]", item)
    counts = Counter(item["state"] for item in document["items"])
    refused = f", {counts['refused']} refused; what to do: {REMEDIES['storage']}" if counts["refused"] else ""
    yield f"{counts['made']} made, {counts['present']} present{refused}"


COMMANDS: Final = (
    Command(
        "doctor",
        "check a running app part by part, and name the first that fails with what to do",
        _doctor,
        "app_url master_key part_seconds stuck",
    ),
    Command(
        "setup",
        "make the queues and tables that the app needs and lacks",
        Ask(
            "POST setup",
            "items",
            _made,
            went_well=lambda document: all(item["state"] != "refused" for item in document["items"]),
        ),
        "app_url",
    ),
)
