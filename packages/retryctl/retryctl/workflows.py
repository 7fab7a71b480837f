"""Commands about batches and sagas: submit, list, show, watch."""

from argparse import Namespace
from collections.abc import Iterable, Mapping
from typing import Any, Final

from retryctl import errors, watching
from retryctl.api import Api
from retryctl.causes import act_by
from retryctl.documents import given_options, read_document
from retryctl.layout import cells, instant, printable, state, table
from retryctl.operations import generated_key
from retryctl.screen import Screen, bar

BATCH_FINISHED: Final = frozenset({"succeeded", "failed"})
SAGA_FINISHED: Final = frozenset({"succeeded", "compensated", "compensation_failed", "stopped"})
_ITEM_FINISHED: Final = ("succeeded", "dead_lettered", "cancelled")


def submit_batch(api: Api, args: Namespace, screen: Screen) -> int:
    """Submit a batch; with `--watch` follow it until it ends."""
    body = _body_with_list(args.file, "items")
    body |= given_options(args, "max_concurrency", "tolerated_failures")
    accepted = api.post("batches", body=body, headers=_key_header(args, body, screen))
    if args.watch:
        return _watch_batch(api, accepted["batch_id"], screen)
    screen.show(accepted, accepted["batch_id"])
    return errors.OK


def list_batches(api: Api, args: Namespace, screen: Screen) -> int:
    """List batches without their items, newest first."""
    document = api.pages("batches", limit=args.limit)
    rows = [
        [
            *cells(each, "batch_id", "status", "key"),
            _batch_counts(each),
            *cells(each, "created_at", "finished_at"),
        ]
        for each in document["items"]
    ]
    headers = ("BATCH", "STATUS", "KEY", "ITEMS", "CREATED", "FINISHED")
    screen.show_list(document, "batch_id", table(headers, rows))
    return errors.OK


def show_batch(api: Api, args: Namespace, screen: Screen) -> int:
    """Show a batch, item by item."""
    document = api.get("batches", args.id, status=args.status)
    screen.show(document, _batch_text(document))
    return errors.OK


def watch_batch(api: Api, args: Namespace, screen: Screen) -> int:
    """Follow a batch until it ends."""
    return _watch_batch(api, args.id, screen)


def submit_saga(api: Api, args: Namespace, screen: Screen) -> int:
    """Submit a saga; with `--watch` follow it until it ends."""
    body = _body_with_list(args.file, "steps")
    accepted = api.post("sagas", body=body, headers=_key_header(args, body, screen))
    if args.watch:
        return _watch_saga(api, accepted["saga_id"], screen)
    screen.show(accepted, accepted["saga_id"])
    return errors.OK


def list_sagas(api: Api, args: Namespace, screen: Screen) -> int:
    """List sagas, newest first."""
    document = api.pages("sagas", limit=args.limit)
    rows = [
        [*cells(each, "saga_id", "status", "key"), _steps_text(each), *cells(each, "created_at")]
        for each in document["items"]
    ]
    screen.show_list(document, "saga_id", table(("SAGA", "STATUS", "KEY", "STEPS", "CREATED"), rows))
    return errors.OK


def show_saga(api: Api, args: Namespace, screen: Screen) -> int:
    """Show a saga, step by step."""
    document = api.get("sagas", args.id)
    screen.show(document, "\n".join([_saga_text(document), *_wait(api, document)]))
    return errors.OK


def _wait(api: Api, saga: Mapping[str, Any]) -> list[str]:
    """Say what the operation that runs waits for: a saga runs one at a time."""
    parts = (part for step in saga["steps"] for part in (step, step["compensation"] or {}))
    running = [part["operation_id"] for part in parts if part.get("status") == "running"]
    if not running:
        return []
    try:
        operation = api.get("operations", running[0])
    except errors.ApiError:
        return []  # It has not begun.
    if operation["next_attempt_at"] is None:
        return []
    is_held = operation["status"] == "waiting_circuit"
    circuit = operation.get("waits_for") or operation["dependency"]
    what = f"waits for the circuit of {circuit}, looks again" if is_held else "next attempt"
    return [f"{operation['key']}  {what} {instant(operation['next_attempt_at'])}"]


def restart_saga(api: Api, args: Namespace, screen: Screen) -> int:
    """Run a compensated saga again; with `--watch` follow it until it ends.

    Raises:
        UsageError: A `--confirm` is not `STEP=undone` or `STEP=stands`.
    """
    body = given_options(args, "from_step", "note")
    if confirmed := _confirmed(args.confirm):
        body["confirmed"] = confirmed
    document = api.post("sagas", args.id, "restart", body=body)
    if args.watch:
        return _watch_saga(api, args.id, screen)
    runs, keeps = (", ".join(document[name]) or "none" for name in ("runs", "keeps"))
    head = f"{document['saga_id']}  restart {document['restart']}"
    screen.show(document, f"{head}\nruns   {runs}\nkeeps  {keeps}")
    return errors.OK


def _confirmed(words: Iterable[str]) -> dict[str, str]:
    confirmed = {}
    for word in words:
        step, _, found = word.rpartition("=")
        if not step or found not in {"undone", "stands"}:
            raise errors.UsageError(f"--confirm {word}: must be STEP=undone or STEP=stands")
        confirmed[step] = found
    return confirmed


def watch_saga(api: Api, args: Namespace, screen: Screen) -> int:
    """Follow a saga until it ends."""
    return _watch_saga(api, args.id, screen)


def _body_with_list(file: str, name: str) -> dict[str, Any]:
    """Return a file's body; a list in the file becomes the field with this name."""
    document = read_document(file)
    if isinstance(document, list):
        return {name: document}
    if not isinstance(document, dict):
        raise errors.UsageError(f"{file}: must be a JSON list or object")
    return document


def _key_header(args: Namespace, body: Mapping[str, Any], screen: Screen) -> dict[str, str]:
    if args.key is None and body.get("key") is not None:
        return {}
    return {"Idempotency-Key": args.key or generated_key(screen)}


def _watch_batch(api: Api, batch_id: str, screen: Screen) -> int:
    document: dict[str, Any] = {}
    for document in watching.follow(
        lambda: api.get("batches", batch_id), BATCH_FINISHED, screen, _batch_progress
    ):
        screen.show_change(document, _batch_text(document) if document["status"] in BATCH_FINISHED else "")
    return errors.OK if document["status"] == "succeeded" else errors.FAILED


def _batch_progress(document: Mapping[str, Any]) -> str:
    counts = document["counts"]
    done = sum(counts[name] for name in _ITEM_FINISHED)
    return f"{bar(done, counts['total'])}  {_batch_counts(document)}"


def _batch_counts(document: Mapping[str, Any]) -> str:
    counts = document["counts"]
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count and name != "total")


def _batch_text(document: Mapping[str, Any]) -> str:
    rows = [cells(each, "index", "status", "operation_id", "key", "error") for each in document["items"]]
    head = f"{document['batch_id']}  {state(document['status'])}: {_batch_counts(document)}"
    why = [f"failed, since {document['reason']}"] if document.get("reason") else []
    return "\n".join([head, *why, table(("ITEM", "STATUS", "OPERATION", "KEY", "ERROR"), rows)])


def _watch_saga(api: Api, saga_id: str, screen: Screen) -> int:
    document: dict[str, Any] = {}
    for document in watching.follow(lambda: api.get("sagas", saga_id), SAGA_FINISHED, screen, _saga_line):
        is_finished = document["status"] in SAGA_FINISHED
        screen.show_change(document, _saga_text(document) if is_finished else _saga_line(document))
    return errors.OK if document["status"] == "succeeded" else errors.FAILED


def _saga_line(document: Mapping[str, Any]) -> str:
    return f"{document['saga_id']}  {state(document['status'])}: {_steps_text(document)}"


def _steps_text(document: Mapping[str, Any]) -> str:
    return ", ".join(f"{step['name']} {step['status']}" for step in document["steps"])


def _saga_text(document: Mapping[str, Any]) -> str:
    rows = [
        (
            *cells(step, "name", "status", "effect"),
            *cells(step["compensation"] or {}, "status"),
            step["error"],
        )
        for step in document["steps"]
    ]
    head = "\n".join(
        [
            f"{document['saga_id']}  {state(document['status'])}",
            *map(_restart_line, document.get("restarts", ())),
        ]
    )
    return f"{head}\n{table(('STEP', 'STATUS', 'EFFECT', 'COMPENSATION', 'ERROR'), rows)}"


def _restart_line(restart: Mapping[str, Any]) -> str:
    note = f": {printable(restart['note'])}" if restart["note"] else ""
    runs = ", ".join(restart["runs"]) or "no step"
    said = (f"{step} as {found}" for step, found in (restart.get("confirmed") or {}).items())
    confirmed = "".join(f", confirmed {printable(each)}" for each in said)
    return f"restarted {instant(restart['requested_at'])}{act_by(restart)}, ran {runs}{confirmed}{note}"
