"""What makes two submissions under one key the same: a hash of the request, or of chosen parts of it.

Independent of the order of keys and of how a number is written: 5 and 5.0 are one JSON number.
"""

import json
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Final

_POINTER: Final = re.compile(r"(/([^~/]|~[01])*)*")
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_EXACT: Final = 2**53
"""Above this not every whole number has a float of its own, so a float is not taken for a whole number."""


def canonical_json(value: Any) -> str:
    """Write JSON in one form only: keys sorted, no white space, ASCII, whole floats as whole numbers."""
    return json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def fingerprint(target: str, request: Any, pointers: Iterable[str] = ()) -> str:
    """Hash a request, or the parts of it that the pointers name.

    Args:
        target: What it goes to, e.g. `dependency payments` or `handler ship-order`; always part of the hash.
        request: The JSON form of the request, or a handler's input.
        pointers: JSON pointers (RFC 6901) into it; empty means all of it. What is missing differs from null.

    Returns:
        64 hexadecimal digits.
    """
    chosen = list(pointers)
    seen = (
        [[pointer, *pointed_at(request, pointer)] for pointer in sorted(chosen)]
        if chosen
        else [["", request]]
    )
    return sha256(canonical_json([target, seen]).encode()).hexdigest()


def pointed_at(document: Any, pointer: str) -> list[Any]:
    """Give what a JSON pointer points at, as a list of one; an empty list when there is nothing there."""
    value = document
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping) and name in value:
            value = value[name]
        elif isinstance(value, list) and _INDEX.fullmatch(name) and int(name) < len(value):
            value = value[int(name)]
        else:
            return []
    return [value]


def pointer_problem(pointer: str) -> str | None:
    """Tell what is wrong with a JSON pointer; None when nothing is."""
    if _POINTER.fullmatch(pointer):
        return None
    return "is not a JSON pointer: it begins with /, and ~ stands only in ~0 or ~1 (RFC 6901)"


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _canonical(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        return int(value)
    return value
