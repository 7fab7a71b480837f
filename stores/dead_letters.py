"""Dead letters in an Azure Table: what will not succeed without a person, with nothing lost.

Writing is idempotent: the id is derived from what failed, so that a repeated activity or a redelivered
message leaves one row.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

from engine.grouping import failure_group
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
    operation, attempts = entry["operation"], entry["attempts"]
    last = attempts[-1] if attempts else {}
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
        "group": failure_group(
            dependency=operation["dependency"],
            category=entry["category"],
            reason=entry["reason"],
            status_code=last.get("status_code"),
            error=last.get("error"),
        ),
        "attempts": attempts,
        "request": operation["request"],
        "operation": operation,
        "correlation_id": operation["correlation_id"],
        "first_failed_at": attempts[0]["started_at"] if attempts else to_rfc3339(now),
        **_opened(now),
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
        "group": failure_group(
            dependency=None, category="malformed", reason=reason.value, status_code=None, error=detail
        ),
        "attempts": [],
        "message": text[:_MAX_MESSAGE_CHARS],
        "correlation_id": None,
        "first_failed_at": to_rfc3339(now),
        **_opened(now),
    }
    await _keep(dead_letter_id, document)
    return dead_letter_id


def _opened(now: datetime) -> dict[str, Any]:
    return {"created_at": to_rfc3339(now), "status": "open", "replays": [], "notes": []}


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
