"""One number per name, spread evenly: what stands in for a random draw where replays must agree."""

import hashlib

_RANGE = 2**64


def fraction_of(*names: str) -> float:
    """A number in [0, 1) that depends on nothing but the names.

    Different names give independent, evenly spread numbers; the same names give the same number on every
    machine and in every replay.
    """
    digest = hashlib.sha256("\x00".join(names).encode()).digest()
    # 53 bits are what a float holds; more would round up to 1.0.
    return (int.from_bytes(digest[:8]) >> 11) / (_RANGE >> 11)
