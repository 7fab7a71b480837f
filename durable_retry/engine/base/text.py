"""Durations and long texts as a person reads them."""

from typing import Final

CUT_MARK: Final = "... (cut)"


def seconds_text(seconds: float) -> str:
    """Return a duration to the millisecond, without trailing zeros: `2 s`, `1.37 s`, `86400 s`."""
    return f"{seconds:.3f}".rstrip("0").rstrip(".") + " s"


def cut_text(text: str, limit: int) -> str:
    """Return at most `limit` characters, the cut marked; `limit` is at least the mark's length."""
    return text if len(text) <= limit else text[: limit - len(CUT_MARK)] + CUT_MARK
