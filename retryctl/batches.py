"""Commands about batches: submit, show, watch."""

from argparse import Namespace
from collections.abc import Mapping
from typing import Any, Final

from retryctl import exit_codes
from retryctl.api import Api
from retryctl.documents import read_document
from retryctl.screen import Screen
from retryctl.tables import bar, table
from retryctl.watching import follow

FINISHED: Final = frozenset({"succeeded", "failed"})
_ENDED: Final = ("succeeded", "dead_lettered", "cancelled")


def submit(api: Api, args: Namespace, screen: Screen) -> int:
    """Hand a batch in: a file with a list of operations, or with the whole body."""
    document = read_document(args.file)
    body = {"items": document} if isinstance(document, list) else document
    given = {"max_concurrency": args.max_concurrency, "tolerated_failures": args.tolerated_failures}
    body = body | {name: value for name, value in given.items() if value is not None}
    accepted = api.post("batches", body=body, headers=key_header(args))
    if args.watch:
        return _watch(api, accepted["batch_id"], screen)
    screen.show(accepted, accepted["batch_id"])
    return exit_codes.OK


def key_header(args: Namespace) -> dict[str, str]:
    """Return the header that names the work, when a key was given."""
    return {} if args.key_of_work is None else {"Idempotency-Key": args.key_of_work}


def show(api: Api, args: Namespace, screen: Screen) -> int:
    """Show a batch, item by item."""
    document = api.get("batches", args.id)
    screen.show(document, _text(document))
    return exit_codes.OK


def watch(api: Api, args: Namespace, screen: Screen) -> int:
    """Follow a batch to its end."""
    return _watch(api, args.id, screen)


def _watch(api: Api, batch_id: str, screen: Screen) -> int:
    document: dict[str, Any] = {}
    for document in follow(lambda: api.get("batches", batch_id), FINISHED, screen, _progress):
        screen.change(document, _text(document) if document["status"] in FINISHED else "")
    return exit_codes.OK if document["status"] == "succeeded" else exit_codes.BADLY


def _progress(document: Mapping[str, Any]) -> str:
    counts = document["counts"]
    return f"{bar(sum(counts[name] for name in _ENDED), counts['total'])}  {_counts(document)}"


def _counts(document: Mapping[str, Any]) -> str:
    counts = document["counts"]
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count and name != "total")


def _text(document: Mapping[str, Any]) -> str:
    rows = [
        (each["index"], each["status"], each["operation_id"], each["key"], each["error"])
        for each in document["items"]
    ]
    head = f"{document['batch_id']}  {document['status']}: {_counts(document)}"
    return f"{head}\n{table(('ITEM', 'STATUS', 'OPERATION', 'KEY', 'ERROR'), rows)}"
