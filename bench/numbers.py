"""Percentiles and the tables that the benchmarks print."""

from collections.abc import Sequence
from dataclasses import dataclass


def percentile(values: Sequence[float], percent: float) -> float:
    """Returns the smallest value that at least `percent` of the values do not pass (nearest rank).

    Args:
        values: At least one.
        percent: Above 0, up to 100.
    """
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[int(rank) - 1]


@dataclass(frozen=True, slots=True)
class Row:
    """One measured quantity: what it is, its unit, and a value per column."""

    name: str
    unit: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """What one benchmark found.

    Attributes:
        title: What was done.
        columns: Who did it, in the order of each row's values.
        rows: The quantities.
        notes: What a reader must know to judge the numbers.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def markdown(self) -> str:
        """Returns the table, aligned, so that it reads in a terminal and in a document."""
        cells = [
            ("measured", "unit", *self.columns),
            *((row.name, row.unit, *row.values) for row in self.rows),
        ]
        widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
        lines = [
            "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
            for line in cells
        ]
        lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
        return "\n".join([f"## {self.title}", "", *lines, "", *(f"- {note}" for note in self.notes)])


def milliseconds(seconds: float) -> str:
    """Returns a duration in milliseconds with one decimal."""
    return f"{seconds * 1000:.1f}"
