"""A hash of the request, or of chosen parts of it: what two submissions under one key are compared by.

Independent of the order of keys and of the form of a number: 5 and 5.0 are one JSON number.
"""

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Final

from durable_retry.engine.base.json_pointer import pointed_at

_EXACT: Final = 2**53
"""Above this a float no longer identifies one whole number, so it is not written as one."""


def canonical_json(value: Any) -> str:
    """Return JSON in one form: keys sorted, no white space, ASCII, whole floats as whole numbers."""
    return json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def fingerprint(target: str, request: Any, pointers: Iterable[str] = ()) -> str:
    """Hash a request, or the parts of it that the pointers name.

    Args:
        target: The destination, e.g. `dependency payments` or `handler ship-order`; always part of the hash.
        request: The JSON form of the request, or a handler's input.
        pointers: JSON pointers (RFC 6901) into it; empty means all of it. A missing part differs from null.

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


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _canonical(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    # JSON has one kind of number, so 5 and 5.0 are the same request.
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        return int(value)
    return value
