"""Numbers in texts of people and clients: Python's own functions take digits of every script, and `1_000`."""

import re
from typing import Final

_DIGITS: Final = re.compile(r"[0-9]{1,18}")
"""As many as SQLite's integers hold."""
_DECIMAL: Final = re.compile(r"[+-]?[0-9]{0,18}\.?[0-9]{1,18}(?:[eE][+-]?[0-9]{1,2})?")


def plain_number(text: str) -> int | None:
    """Return a whole number that is written in digits from 0 to 9 alone; None for any other text."""
    return int(text) if _DIGITS.fullmatch(text) else None


def decimal_number(text: str) -> float | None:
    """Return a number with or without a fraction or an exponent; None for any other text, such as `nan`."""
    return float(text) if _DECIMAL.fullmatch(text) else None
