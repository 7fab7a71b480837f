"""HTTP: hand in many operations at once, and see what became of each."""

import json
import uuid
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

import azure.functions as func

from engine.batch import BatchRequest, Progress
from engine.fingerprint import fingerprint
from engine.instants import to_rfc3339
from engine.json_text import json_problems
from engine.models import Key
from engine.problem import InvalidInputError
from engine.validation import Strict, validated
from engine.vocabulary import DeadLetterReason
from stores import clock
from stores.batches import Batch, Item, document_of, find_batch, keep_batch
from stores.instances import start
from stores.settings import app_settings
from stores.task_hub import BATCH
from triggers.bodies import BodyTooLargeError, read_body, too_large, url_of
from triggers.http_blueprint import HttpBlueprint
from triggers.parts import Whole, whole_of
from triggers.problems import invalid, json_answer, key_reused, not_found
from triggers.resolution import UnknownTargetError

blueprint = HttpBlueprint()

SOURCE: Final = "batch"

_REPLAYED: Final = {"Idempotent-Replayed": "true"}


class _KeyReusedError(Exception):
    """The key belongs to another batch."""


class _Keyed(Strict, extra="ignore"):
    """What is told of a bad item: its key, when it has a usable one."""

    key: Key | None = None


@blueprint.route(route="batches", methods=["POST"])
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def submit_batch(req: func.HttpRequest, hub: str) -> func.HttpResponse:
    """Take a batch over; what is wrong with an item concerns that item only."""
    try:
        document = read_body(req, limit_bytes=app_settings().max_batch_bytes)
        request = validated(BatchRequest, document)
        whole = whole_of(req, SOURCE, uuid.uuid4().hex)
        batch, headers = await _taken(hub, whole, request, fingerprint("batch", document))
        status_url = f"{url_of(req)}/{batch.batch_id}"
        body = {"batch_id": batch.batch_id, "status_url": status_url}
        return json_answer(body, HTTPStatus.ACCEPTED, {"Location": status_url, **headers})
    except _KeyReusedError:
        return key_reused()
    except BodyTooLargeError as error:
        return too_large(error)
    except InvalidInputError as error:
        return invalid(error.problems)


@blueprint.route(route="batches/{batch_id}", methods=["GET"])
async def get_batch(req: func.HttpRequest) -> func.HttpResponse:
    """Show a batch: every item, and counts."""
    batch = await find_batch(req.route_params["batch_id"])
    return not_found("batch of this id") if batch is None else json_answer(await document_of(batch))


async def _taken(hub: str, whole: Whole, request: BatchRequest, print_: str) -> tuple[Batch, dict[str, str]]:
    """Store and start a batch, or find it stored before.

    Raises:
        _KeyReusedError: Its key belongs to another batch.
    """
    now = clock.now()
    known = await find_batch(whole.id)
    batch = known or Batch(
        batch_id=whole.id,
        fingerprint=print_,
        total=len(request.items),
        max_concurrency=request.max_concurrency,
        tolerated_failures=request.tolerated_failures,
        created_at=to_rfc3339(now),
    )
    if batch.fingerprint != print_:
        raise _KeyReusedError
    if known is None:
        await keep_batch(batch, [_item(whole, at, item, now) for at, item in enumerate(request.items)])
    if batch.finished_at is None:
        # Also a batch that is known: a crash may have come before its start.
        await _start(hub, batch)
    return batch, {} if known is None else _REPLAYED


async def _start(hub: str, batch: Batch) -> None:
    progress = Progress(total=batch.total, max_concurrency=batch.max_concurrency)
    given = {"batch_id": batch.batch_id, "progress": progress.to_json()}
    await start(hub, BATCH, batch.batch_id, given, again=False)


def _item(whole: Whole, index: int, document: Any, now: datetime) -> Item:
    """Validate one item; what cannot be an operation is kept with the reason."""
    text = json.dumps(document)
    limit = app_settings().max_body_bytes
    if len(text.encode()) > limit:
        return Item(index=index, key=None, text=text, detail=f"is larger than {limit} bytes")
    try:
        operation = whole.resolve(document, str(index), now)
    except UnknownTargetError as error:
        reason = DeadLetterReason.UNKNOWN_DEPENDENCY
        return Item(index=index, key=_key_of(document), text=text, reason=reason, detail=str(error))
    except InvalidInputError as error:
        return Item(index=index, key=_key_of(document), text=text, detail=str(error))
    return Item(index=index, key=operation.key, operation=operation)


def _key_of(document: Any) -> str | None:
    try:
        return None if json_problems(document) else validated(_Keyed, document).key
    except InvalidInputError:
        return None
