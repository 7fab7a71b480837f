"""A hash of names as a number, in place of a random draw: replays must come to the same number."""

import hashlib

_RANGE = 2**64


def deterministic_fraction(*names: str) -> float:
    """Return a number in [0, 1) that depends on the names alone.

    Different names give independent, evenly distributed numbers. The same names give the same number on every
    machine and in every replay.
    """
    digest = hashlib.sha256("\x00".join(names).encode()).digest()
    # 53 bits are what a float holds; more would round up to 1.0.
    return (int.from_bytes(digest[:8]) >> 11) / (_RANGE >> 11)
