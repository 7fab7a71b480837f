"""HTTP: hand in many operations at once, and see what became of each."""

import json
import uuid
from datetime import datetime
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
from triggers.http_blueprint import HttpBlueprint
from triggers.parts import Whole, read_whole, taken_over, whole_of
from triggers.problems import json_answer, key_reused, not_found
from triggers.resolution import UnknownTargetError

blueprint = HttpBlueprint()

SOURCE: Final = "batch"


class _Keyed(Strict, extra="ignore"):
    """What is told of a bad item: its key, when it has a usable one."""

    key: Key | None = None


@blueprint.route(route="batches", methods=["POST"])
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def submit_batch(req: func.HttpRequest, hub: str) -> func.HttpResponse:
    """Take a batch over; what is wrong with an item concerns that item only."""
    document, request = read_whole(req, BatchRequest)
    whole = whole_of(req, SOURCE, uuid.uuid4().hex)
    known = await find_batch(whole.id)
    print_ = fingerprint(SOURCE, document)
    if known is not None and known.fingerprint != print_:
        return key_reused()
    batch = known or await _kept(whole, request, print_)
    if batch.finished_at is None:
        # Also a batch that is known: a crash may have come before its start.
        await _start(hub, batch)
    return taken_over(req, whole, is_replay=known is not None)


@blueprint.route(route="batches/{batch_id}", methods=["GET"])
async def get_batch(req: func.HttpRequest) -> func.HttpResponse:
    """Show a batch: every item, and counts."""
    batch = await find_batch(req.route_params["batch_id"])
    return not_found("batch of this id") if batch is None else json_answer(await document_of(batch))


async def _kept(whole: Whole, request: BatchRequest, print_: str) -> Batch:
    """Store a new batch with all its items."""
    now = clock.now()
    batch = Batch(
        batch_id=whole.id,
        fingerprint=print_,
        total=len(request.items),
        max_concurrency=request.max_concurrency,
        tolerated_failures=request.tolerated_failures,
        created_at=to_rfc3339(now),
    )
    await keep_batch(batch, [_item(whole, at, item, now) for at, item in enumerate(request.items)])
    return batch


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
