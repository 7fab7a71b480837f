"""A value that must not appear in logs, errors or JSON."""

from typing import Final, override

MASK: Final = "***"


class Secret:
    """Text that repr, str, format and JSON hide; only `reveal` returns it.

    Neither a string nor a dataclass, so that serialisers refuse it instead of leaking it.
    """

    __slots__ = ("__text",)

    def __init__(self, text: str) -> None:
        self.__text = text

    def reveal(self) -> str:
        """Return the text, for the one place that sends it."""
        return self.__text

    @override
    def __repr__(self) -> str:
        return f"Secret({MASK})"

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.__text == other.__text

    @override
    def __hash__(self) -> int:
        return hash(self.__text)

    @override
    def __str__(self) -> str:
        return MASK
