"""What an operation that ended without success hands to the dead letters."""

from hashlib import sha256
from typing import Any

import pytest

from tests.operation_stage import an_operation


def an_entry(operation_id: str, *, error: str = "no such amount 5", **changes: Any) -> dict[str, Any]:
    """Return the entry of an operation that one attempt ended; `changes` go to the entry or the operation."""
    entry = {"category": "malformed", "reason": "RejectedByDependency", "detail": "status 422"}
    entry |= {name: changes.pop(name) for name in entry.keys() & changes.keys()}
    operation = an_operation(**({"operation_id": operation_id, "key": f"key-{operation_id}"} | changes))
    attempt = {
        "number": 1,
        "started_at": "2026-11-21T09:00:00Z",
        "duration_ms": 4.2,
        "category": entry["category"],
        "status_code": 422,
        "error": error,
        "next_delay_seconds": None,
        "delay_reasons": [],
    }
    return {**entry, "operation": operation.to_json(), "attempts": [attempt]}


def use_own_tables(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a test empty tables: counts and lists are of all dead letters that there are."""
    suffix = sha256(name.encode()).hexdigest()[:16]
    monkeypatch.setattr("stores.dead_letters.TABLE", f"Letters{suffix}")
    monkeypatch.setattr("stores.alerts.TABLE", f"Alerts{suffix}")
    for module in ("index", "tally", "list", "intents"):
        monkeypatch.setattr(f"stores.dead_letter_{module}.TABLE", f"Index{suffix}")
