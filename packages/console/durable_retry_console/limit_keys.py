"""The limit keys of some things, counted."""

from collections import Counter
from collections.abc import Mapping
from typing import Final, Self

from pydantic import Field

from durable_retry.base.answers import Answer

_KEYS_SHOWN: Final = 5


class LimitKeyCounts(Answer):
    """The limit keys of some things: whose they are."""

    keys: int = Field(description="How many limit keys.")
    most: Mapping[str, int] = Field(description="How many things have each, of the five that most have.")

    @classmethod
    def of(cls, counts: Counter[str]) -> Self | None:
        """Return it for how many have each key; None where none has one."""
        return cls(keys=len(counts), most=dict(counts.most_common(_KEYS_SHOWN))) if counts else None
