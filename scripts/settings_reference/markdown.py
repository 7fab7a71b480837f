"""Tables, and how a value or a range is shown in one."""

from collections.abc import Iterable, Sequence
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Give a Markdown table; cells hold no line breaks."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)


def shown(value: Any) -> str:
    """Give a value as one would write it; nothing for what is empty."""
    if value in (None, "", [], {}):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float) and value.is_integer():
        return f"`{int(value)}`"
    return f"`{value}`"


def span(least: float | None, most: float | None, *, above: float | None = None) -> str:
    """Tell a range.

    Args:
        least: The smallest value; None when there is none.
        most: The largest value; None when there is none.
        above: A limit below which nothing is allowed, itself included; None when there is none.
    """
    if above is not None:
        return f"above {_number(above)}" + ("" if most is None else f", up to {_number(most)}")
    if least is None:
        return "" if most is None else f"up to {_number(most)}"
    return f"{_number(least)} or more" if most is None else f"{_number(least)} to {_number(most)}"


def words(choices: Iterable[str]) -> str:
    """List words to choose from."""
    return ", ".join(f"`{word}`" for word in choices)


def _number(value: float) -> str:
    return f"{int(value):,}" if float(value).is_integer() else f"{value:g}"
