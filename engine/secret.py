"""A value that must not be seen."""

from typing import Final, override

MASK: Final = "***"


class Secret:
    """Text that no repr, str, format or JSON shows; only `reveal` does.

    It is neither a string nor a dataclass, so that serialisers refuse it rather than leak it.
    """

    __slots__ = ("__text",)

    def __init__(self, text: str) -> None:
        self.__text = text

    def reveal(self) -> str:
        """Give the text itself, for the one place that sends it."""
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
