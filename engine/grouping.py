"""Which dead letters have one root cause: a name that is stable over ids, times and numbers."""

import re
from hashlib import sha256
from typing import Final

_VARIABLE: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"  # a UUID
    r"|\b(?=[a-z_\-]*[0-9])[0-9a-z_\-]{12,}\b"  # any long id with a digit in it
    r"|[0-9]+(?:\.[0-9]+)*",  # a number, a version, an address
    re.IGNORECASE,
)


def failure_group(
    *, dependency: str | None, category: str, reason: str, status_code: int | None, error: str | None
) -> str:
    """Name the group of a failure: equal for failures that differ in ids and numbers only.

    Args:
        dependency: None for a message that names none.
        category: Of the last failure.
        reason: The contract's name.
        status_code: Of the last answer; None when there was none.
        error: As recorded with the last attempt; None when there was none.

    Returns:
        `g-` and 16 hexadecimal digits.
    """
    parts = (dependency or "", category, reason, str(status_code or ""), _VARIABLE.sub("#", error or ""))
    return "g-" + sha256("\x00".join(parts).encode("utf-8", "replace")).hexdigest()[:16]
