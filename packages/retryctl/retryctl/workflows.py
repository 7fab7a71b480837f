"""Commands about batches and sagas."""

from collections.abc import Iterator
from typing import Any, Final

from rich.console import RenderableType
from rich.text import Text

from retryctl import errors
from retryctl.api import Api
from retryctl.commands import Ask, Command, Given, Listing, Watch
from retryctl.operations import by, next_text, with_key
from retryctl.options import read_document
from retryctl.output import Rows, Screen, bar, fill, instant

_BATCH_ENDED: Final = frozenset({"succeeded", "failed"})
_SAGA_ENDED: Final = frozenset({"succeeded", "compensated", "compensation_failed", "stopped"})


def _counts(batch: Any) -> str:
    return ", ".join(
        f"{count} {name}" for name, count in batch["counts"].items() if count and name != "total"
    )


def _batch(document: Any) -> Iterator[RenderableType]:
    yield fill("{batch_id}  {status}: ", document).append(_counts(document))
    if document.get("reason"):
        yield f"failed, since {document['reason']}"
    yield Rows(document["items"], "index:item status operation_id key error")


def _batch_live(document: Any) -> str:
    counts = document["counts"]
    done = sum(counts[name] for name in ("succeeded", "dead_lettered", "cancelled"))
    return f"{bar(done, counts['total'])}  {_counts(document)}"


def _steps(saga: Any) -> str:
    return ", ".join(f"{step['name']} {_step_state(step)}" for step in saga["steps"])


def _step_state(step: Any) -> Any:
    return "undone" if step["effect"] == "undone" else step["status"]


def _saga(document: Any) -> Iterator[RenderableType]:
    line = fill("{saga_id}  {status}", document)
    if reason := document.get("reason"):
        line.append(f": {reason}; effect: {document.get('effect', 'not known yet')}")
    yield line
    for restart in document.get("restarts", ()):
        confirmed = "".join(
            f", confirmed {step} as {is_}" for step, is_ in (restart.get("confirmed") or {}).items()
        )
        note = f": {restart['note']}" if restart["note"] else ""
        runs = ", ".join(restart["runs"]) or "no step"
        yield f"restarted {instant(restart['requested_at'])}{by(restart)}, ran {runs}{confirmed}{note}"
    steps = [step | {"status": _step_state(step)} for step in document["steps"]]
    yield Rows(steps, "name:step status effect compensation.status:compensation error")
    for letter in filter(None, (part.get("dead_letter_id") for _, part in _parts(document))):
        yield f"to run what failed again: retryctl dead-letters replay {letter}"


def _parts(saga: Any) -> Iterator[tuple[str, Any]]:
    """Yield the operations of a saga, each with words for it."""
    for step in saga["steps"]:
        yield step["name"], step
        yield f"undoing {step['name']}", step["compensation"] or {}


def _saga_change(_before: Any, document: Any) -> Iterator[RenderableType]:
    if document["status"] in _SAGA_ENDED:
        return _saga(document)
    return iter((fill("{saga_id}  {status}: ", document).append(_steps(document)),))


def _saga_live(document: Any) -> str:
    return f"{document['saga_id']}  {document['status']}: {_steps(document)}"


def _show_saga(api: Api, given: Given, screen: Screen) -> int:
    document = api.ask("GET sagas/{id}", given)
    screen.show(document, lambda shown: [*_saga(shown), *_wait(api, shown)])
    return errors.OK


def _wait(api: Api, saga: Any) -> Iterator[str]:
    """Yield what the operation that runs waits for: a saga runs one at a time."""
    running = [(name, part["operation_id"]) for name, part in _parts(saga) if part.get("status") == "running"]
    if not running:
        return
    name, operation_id = running[0]
    try:
        operation = api.ask("GET operations/{id}", {"id": operation_id})
    except errors.ApiError:
        return  # It has not begun.
    if operation["next_attempt_at"] is not None:
        why = [wait["delay_reasons"][0] for wait in operation.get("waits", ())][-1:]
        yield "; ".join([f"{name} waits", *why, next_text(operation)])


_BATCH: Final = Watch(
    "batches",
    "batch_id",
    _BATCH_ENDED,
    _batch_live,
    lambda _before, document: _batch(document) if document["status"] in _BATCH_ENDED else (),
)
_SAGA: Final = Watch("sagas", "saga_id", _SAGA_ENDED, _saga_live, _saga_change)


def _submit_batch(api: Api, given: Given, screen: Screen) -> int:
    return Ask("POST batches", "{batch_id}", _BATCH)(api, _body_of(given, "items", screen), screen)


def _submit_saga(api: Api, given: Given, screen: Screen) -> int:
    return Ask("POST sagas", "{saga_id}", _SAGA)(api, _body_of(given, "steps", screen), screen)


def _body_of(given: Given, name: str, screen: Screen) -> Given:
    """Return a file's body with the options; a list in the file becomes the field with this name."""
    document = read_document(file := given.pop("file"))
    if isinstance(document, list):
        document = {name: document}
    if not isinstance(document, dict):
        raise errors.UsageError(f"{file}: must be a JSON list or object")
    return with_key(document | given, given, screen)


def _restarted(document: Any) -> Iterator[Text]:
    yield fill("{saga_id}  restart {restart}", document)
    for name in ("runs", "keeps"):
        yield Text(f"{name:5}  {', '.join(document[name]) or 'none'}")


COMMANDS: Final = (
    Command("batch submit", "submit a batch", _submit_batch, "file concurrency tolerated own_key watch"),
    Command(
        "batch list",
        "list batches, newest first",
        Listing(
            "batches", "batch_id status key items created_at finished_at", "batch_id", {"items": _counts}
        ),
        "list",
    ),
    Command(
        "batch show", "show a batch, item by item", Ask("GET batches/{id}", _batch), "id operation_status"
    ),
    Command("batch watch", "follow a batch until it ends", _BATCH, "id"),
    Command("saga submit", "submit a saga", _submit_saga, "file own_key watch"),
    Command(
        "saga list",
        "list sagas, newest first",
        Listing("sagas", "saga_id status key steps created_at", "saga_id", {"steps": _steps}),
        "list",
    ),
    Command("saga show", "show a saga, step by step", _show_saga, "id"),
    Command("saga watch", "follow a saga until it ends", _SAGA, "id"),
    Command(
        "saga restart",
        "run a compensated saga again",
        Ask("POST sagas/{id}/restart", _restarted, _SAGA),
        "id saga_step note confirm watch",
    ),
)
