"""What is refused, by the places of its mistakes."""

from collections.abc import Callable
from typing import Any

import pytest

from durable_retry.base.validation import InvalidInputError


def pointers_of(function: Callable[..., object], *args: Any, **kwargs: Any) -> list[str]:
    """Return the pointer of each mistake that a call is refused for."""
    with pytest.raises(InvalidInputError) as caught:
        function(*args, **kwargs)
    return [problem.pointer for problem in caught.value.problems]
