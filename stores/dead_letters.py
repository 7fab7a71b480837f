"""Dead letters in an Azure Table: what will not succeed without a person, with nothing lost.

Writing is idempotent: the id is derived from what failed, so that a repeated activity or a redelivered
message leaves one row.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

from engine.instants import to_rfc3339
from engine.vocabulary import DeadLetterReason
from stores import tables

TABLE: Final = "DeadLetters"

_ROW_KEY: Final = "record"
_MAX_MESSAGE_CHARS: Final = 100_000
"""A storage queue carries at most 64 KiB; other sources more, and a row holds 1 MiB."""


async def keep_operation(entry: Mapping[str, Any], now: datetime) -> str:
    """Keep an operation that ended without success.

    Args:
        entry: `operation`, `category`, `reason`, `detail`, `attempts`, all as JSON.
        now: Aware UTC instant of its end.

    Returns:
        The dead letter's id, the same when called again for the same end.
    """
    operation = entry["operation"]
    dead_letter_id = _id(operation["operation_id"], operation["replay_of"] or "", operation["created_at"])
    document = {
        "id": dead_letter_id,
        "operation_id": operation["operation_id"],
        "key": operation["key"],
        "source": operation["source"],
        "dependency": operation["dependency"],
        "category": entry["category"],
        "reason": entry["reason"],
        "detail": entry["detail"],
        "attempts": entry["attempts"],
        "correlation_id": operation["correlation_id"],
        "operation": operation,
        "created_at": to_rfc3339(now),
        "status": "open",
    }
    await _keep(dead_letter_id, document)
    return dead_letter_id


async def keep_message(
    text: str, *, source: str, message_id: str, reason: DeadLetterReason, detail: str, now: datetime
) -> str:
    """Keep a message that can never become an operation, its raw text included.

    Returns:
        The dead letter's id, the same when the same message comes again.
    """
    dead_letter_id = _id(source, message_id, text)
    document: dict[str, Any] = {
        "id": dead_letter_id,
        "operation_id": None,
        "key": message_id,
        "source": source,
        "dependency": None,
        "category": "malformed",
        "reason": reason.value,
        "detail": detail,
        "attempts": [],
        "message": text[:_MAX_MESSAGE_CHARS],
        "correlation_id": None,
        "created_at": to_rfc3339(now),
        "status": "open",
    }
    await _keep(dead_letter_id, document)
    return dead_letter_id


async def _keep(dead_letter_id: str, document: Mapping[str, Any]) -> None:
    row = {
        "PartitionKey": dead_letter_id,
        "RowKey": _ROW_KEY,
        "reason": document["reason"],
        "status": document["status"],
        "created_at": document["created_at"],
        **tables.packed("document", json.dumps(document)),
    }
    await tables.insert_if_absent(TABLE, row)


def _id(*parts: str) -> str:
    digest = sha256("\x00".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
    return f"dl-{digest[:32]}"
