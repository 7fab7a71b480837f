"""Making a status small enough for an orchestration's custom status.

The Azure Storage backend refuses a custom status above 16 KB of UTF-16. Texts are cut first, the cut marked;
the attempts that the contract promises are never left out.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from engine.wording import CUT_MARK, cut_text

MAX_BYTES: Final = 16_000
"""Of UTF-16; a little under 16 * 1024, to leave room for a wrapping of the platform's own."""

_TEXTS: Final = frozenset({"error", "detail", "type"})
_CUTS: Final = ((400, 10, 20), (160, 6, 20), (60, 3, 10), (30, 1, 0), (len(CUT_MARK), 0, 0))
"""Ever shorter: characters of a text, number of reasons of a delay (and of waits), number of events."""


def fitted_status(status: Mapping[str, Any]) -> dict[str, Any]:
    """Give a status document, or the moving part of one, so that it fits.

    Args:
        status: As `OperationStatus.to_json` gives it, without `result`; holds at most the last 20 attempts.

    Returns:
        The same when it fits. Otherwise with errors, details, reasons and event types cut, and in the end
        without events: a finished operation shows all of them elsewhere.
    """
    whole = dict(status)
    if size_bytes(whole) <= MAX_BYTES:
        return whole
    shorter = (_cut_status(whole, *limits) for limits in _CUTS)
    return next((form for form in shorter if size_bytes(form) <= MAX_BYTES), _cut_status(whole, *_CUTS[-1]))


def size_bytes(document: Any) -> int:
    """Give the size that a platform sees that writes JSON as UTF-16, every other character escaped."""
    return 2 * len(json.dumps(document))


def _cut_status(status: dict[str, Any], chars: int, reasons: int, events: int) -> dict[str, Any]:
    shown = {name: _cut(value, chars, reasons) for name, value in status.items()}
    if "events" in shown:
        shown["events"] = shown["events"][:events]
    if "waits" in shown:
        shown["waits"] = shown["waits"][-max(1, reasons) :]
    return shown


def _cut(value: Any, chars: int, reasons: int, name: str = "") -> Any:
    if isinstance(value, Mapping):
        return {key: _cut(item, chars, reasons, key) for key, item in value.items()}
    if name == "delay_reasons":
        return [cut_text(reason, chars) for reason in value[:reasons]]
    if isinstance(value, list):
        return [_cut(item, chars, reasons) for item in value]
    return cut_text(value, chars) if name in _TEXTS and isinstance(value, str) else value
