"""Commands about sagas: submit, show, watch."""

from argparse import Namespace
from collections.abc import Mapping
from typing import Any, Final

from retryctl import exit_codes
from retryctl.api import Api
from retryctl.batches import key_header
from retryctl.documents import read_document
from retryctl.screen import Screen
from retryctl.tables import table
from retryctl.watching import follow

FINISHED: Final = frozenset({"succeeded", "compensated", "compensation_failed", "stopped"})


def submit(api: Api, args: Namespace, screen: Screen) -> int:
    """Hand a saga in: a file with a list of steps, or with the whole body."""
    document = read_document(args.file)
    body = {"steps": document} if isinstance(document, list) else document
    accepted = api.post("sagas", body=body, headers=key_header(args))
    if args.watch:
        return _watch(api, accepted["saga_id"], screen)
    screen.show(accepted, accepted["saga_id"])
    return exit_codes.OK


def show(api: Api, args: Namespace, screen: Screen) -> int:
    """Show a saga, step by step."""
    document = api.get("sagas", args.id)
    screen.show(document, _text(document))
    return exit_codes.OK


def watch(api: Api, args: Namespace, screen: Screen) -> int:
    """Follow a saga to its end."""
    return _watch(api, args.id, screen)


def _watch(api: Api, saga_id: str, screen: Screen) -> int:
    document: dict[str, Any] = {}
    for document in follow(lambda: api.get("sagas", saga_id), FINISHED, screen, _line):
        screen.change(document, _text(document) if document["status"] in FINISHED else _line(document))
    return exit_codes.OK if document["status"] == "succeeded" else exit_codes.BADLY


def _line(document: Mapping[str, Any]) -> str:
    steps = ", ".join(f"{step['name']} {step['status']}" for step in document["steps"])
    return f"{document['saga_id']}  {document['status']}: {steps}"


def _text(document: Mapping[str, Any]) -> str:
    rows = [
        (
            step["name"],
            step["status"],
            step["effect"],
            None if step["compensation"] is None else step["compensation"]["status"],
            step["error"],
        )
        for step in document["steps"]
    ]
    head = f"{document['saga_id']}  {document['status']}"
    return f"{head}\n{table(('STEP', 'STATUS', 'EFFECT', 'COMPENSATION', 'ERROR'), rows)}"
