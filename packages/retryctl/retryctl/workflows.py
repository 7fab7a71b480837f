"""Commands about batches and sagas."""

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from rich.text import Text

from retryctl import errors
from retryctl.api import Api
from retryctl.commands import Ask, Command, Given, Listing, Watch
from retryctl.operations import next_text, with_key
from retryctl.options import read_document
from retryctl.output import Lines, Rows, Screen, bar, fill

_BATCH_ENDED: Final = frozenset({"succeeded", "failed"})
_SAGA_ENDED: Final = frozenset({"succeeded", "compensated", "compensation_failed", "stopped"})
_RESTARTED: Final = "{saga_id}  restart {restart}\nruns   {runs:none}\nkeeps  {keeps:none}"


def _counts(batch: Any) -> str:
    return ", ".join(
        f"{count} {name}" for name, count in batch["counts"].items() if count and name != "total"
    )


def _batch(document: Any) -> Lines:
    yield fill(
        "{batch_id}  {status}: {counts}[\nfailed, since {reason}]", document | {"counts": _counts(document)}
    )
    yield Rows(document["items"], "index:item status operation_id key error")


def _batch_live(document: Any) -> str:
    counts = document["counts"]
    done = sum(counts[name] for name in ("succeeded", "dead_lettered", "cancelled"))
    return f"{bar(done, counts['total'])}  {_counts(document)}"


def _steps(saga: Any) -> str:
    return ", ".join(f"{step['name']} {_step_state(step)}" for step in saga["steps"])


def _step_state(step: Any) -> Any:
    return "undone" if step["effect"] == "undone" else step["status"]


def _saga(document: Any) -> Lines:
    yield fill("{saga_id}  {status}[: {reason}; effect: {effect:not known yet}]", document)
    for restart in document.get("restarts", ()):
        looks = [f"{step} as {look}" for step, look in (restart.get("confirmed") or {}).items()]
        text = "restarted {requested_at}[ by {by}], ran {runs:no step}[, confirmed {looks}][: {note}]"
        yield fill(text, restart | {"looks": ", confirmed ".join(looks)})
    steps = [step | {"status": _step_state(step)} for step in document["steps"]]
    yield Rows(steps, "name:step status effect compensation.status:compensation error")
    for letter in filter(None, (part.get("dead_letter_id") for _, part in _parts(document))):
        yield f"to run what failed again: retryctl dead-letters replay {letter}"


def _parts(saga: Any) -> Iterator[tuple[str, Any]]:
    """Yield the operations of a saga, each with words for it."""
    for step in saga["steps"]:
        yield step["name"], step
        yield f"undoing {step['name']}", step["compensation"] or {}


def _saga_change(_before: Any, document: Any) -> Lines:
    return _saga(document) if document["status"] in _SAGA_ENDED else [_saga_line(document)]


def _saga_line(document: Any) -> Text:
    return fill("{saga_id}  {status}: ", document).append(_steps(document))


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
    if next_attempt := next_text(operation):
        why = [wait["delay_reasons"][0] for wait in operation.get("waits", ())][-1:]
        yield "; ".join([f"{name} waits", *why, next_attempt])


_BATCH: Final = Watch(
    "batches",
    "batch_id",
    _BATCH_ENDED,
    _batch_live,
    lambda _before, document: _batch(document) if document["status"] in _BATCH_ENDED else (),
)
_SAGA: Final = Watch(
    "sagas", "saga_id", _SAGA_ENDED, lambda document: _saga_line(document).plain, _saga_change
)


def _body_of(name: str, given: Given, screen: Screen) -> Given:
    """Return a file's body with the options; a list in the file becomes the field with this name."""
    document = read_document(file := given.pop("file"))
    if isinstance(document, list):
        document = {name: document}
    if not isinstance(document, dict):
        raise errors.UsageError(f"{file}: must be a JSON list or object")
    return with_key(document | given, given, screen)


COMMANDS: Final = (
    Command(
        "batch submit",
        "submit a batch",
        Ask("POST batches", "batch_id", "{batch_id}", _BATCH, body=partial(_body_of, "items")),
        "file concurrency tolerated own_key watch",
    ),
    Command(
        "batch list",
        "list batches, newest first",
        Listing(
            "batches", "batch_id status key items created_at finished_at", "batch_id", {"items": _counts}
        ),
        "list",
    ),
    Command(
        "batch show",
        "show a batch, item by item",
        Ask("GET batches/{id}", "batch_id", _batch),
        "id item_status",
    ),
    Command("batch watch", "follow a batch until it ends", _BATCH, "id"),
    Command(
        "saga submit",
        "submit a saga",
        Ask("POST sagas", "saga_id", "{saga_id}", _SAGA, body=partial(_body_of, "steps")),
        "file own_key watch",
    ),
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
        Ask("POST sagas/{id}/restart", "saga_id", _RESTARTED, _SAGA),
        "id saga_step note confirm watch",
    ),
)
