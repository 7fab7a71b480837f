"""Cosmos DB change feed: batches of changed documents, each an operation.

The parameter is the batch's own JSON text, so that a document that is none does not fail its neighbours.
A document is the operation itself, without `id` and what the service adds; or the setting COSMOS_OPERATION
points at the operation in it.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import azure.functions as func

from durable_retry.engine.base.json_pointer import pointed_at
from durable_retry.engine.base.json_text import read_json
from durable_retry.engine.base.validation import InvalidInputError
from durable_retry.engine.intake.message import Arrival
from durable_retry.services.intake import intake
from durable_retry.settings.catalogue import COSMOS_CONNECTION, COSMOS_CONTAINER, COSMOS_DATABASE
from durable_retry.triggers.events.platform_retries import RetriedBlueprint, accept_batch

SOURCE: Final = "cosmos_db"

_OF_THE_SERVICE: Final = frozenset({"id", "ttl", "_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"})


async def operations_cosmos_db(documents: str, context: func.Context, hub: str) -> None:
    """Start the operations that a batch of changed documents holds."""
    settings = intake().settings
    place = settings.places.get(SOURCE, "")
    await accept_batch(hub, list(arrivals_of(documents, place, settings.cosmos_operation)), context)


def arrivals_of(documents: str, place: str, pointer: str) -> Iterator[Arrival]:
    """Read a batch; a change is named by its document's `id` and the `_etag` that the change gave it.

    Args:
        documents: A JSON list.
        place: Database and container.
        pointer: Of the operation in each document; "" is the document itself.
    """
    for text, native_id, partition in _changes(documents, pointer):
        yield Arrival(
            source=SOURCE,
            body=text.encode(errors="surrogatepass"),
            place=place,
            native_id=native_id,
            partition=partition,
            may_be_left=True,
        )


def _changes(documents: str, pointer: str) -> list[tuple[str, str, str]]:
    """Return text, id and partition of each change; what is no JSON, or nests without end, stays whole."""
    try:
        found = read_json(documents)
        return [
            (json.dumps(_operation_in(document, pointer)), *_name(document))
            for document in (found if isinstance(found, list) else [found])
        ]
    except (InvalidInputError, RecursionError):
        return [(documents, "", "")]


def cosmos_db_blueprint(max_retries: int, lease_container: str) -> RetriedBlueprint:
    """Return the blueprint; a range of the container waits until its batch is accepted.

    Args:
        max_retries: By the platform; -1 for ever.
        lease_container: Where the host notes how far it is.
    """
    blueprint = RetriedBlueprint()
    trigger = blueprint.cosmos_db_trigger(
        arg_name="documents",
        database_name=COSMOS_DATABASE.reference,
        container_name=COSMOS_CONTAINER.reference,
        connection=COSMOS_CONNECTION.name,
        lease_container_name=lease_container,
        create_lease_container_if_not_exists=True,
    )
    blueprint.retry_growing(blueprint.with_hub(trigger(operations_cosmos_db)), max_retries)
    return blueprint


def _operation_in(document: Any, pointer: str) -> Any:
    """Return the operation in a document; None, which fails validation, where the pointer leads nowhere."""
    if pointer:
        inside = pointed_at(document, pointer)
        return inside[0] if inside else None
    if not isinstance(document, Mapping) or "specversion" in document:
        return document
    return {name: value for name, value in document.items() if name not in _OF_THE_SERVICE}


def _name(document: Any) -> tuple[str, str]:
    """Return a change's id, and the document's, in whose changes there is an order."""
    if not isinstance(document, Mapping) or not document.get("id") or not document.get("_etag"):
        return "", ""
    return f"{document['id']}-{str(document['_etag']).strip('"')}", str(document["id"])
