"""Percentiles and the tables that the benchmarks print."""

import itertools
import os
import platform
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

_HEADING = "## "


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

    def markdown(self, machine: str = "") -> str:
        """Returns the table, aligned, so that it reads in a terminal and in a document.

        Args:
            machine: Where and when it was measured; "" leaves it out.
        """
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
        head = [_HEADING + self.title, "", *([machine, ""] if machine else ())]
        return "\n".join(
            [*head, *lines, *([""] if self.notes else ()), *(f"- {note}" for note in self.notes)]
        )


def with_tables(document: str, tables: Sequence[Table], machine: str) -> str:
    """Returns a document in which each table takes the place of the one with its title; new ones come last.

    Paragraphs below a table stay, and so do the sections of other tables.

    Args:
        document: Markdown; what `Table.markdown` writes is the beginning of a section.
        tables: What was measured now.
        machine: Where and when.
    """
    head, *sections = f"\n{document}".split(f"\n{_HEADING}")
    texts = {section.partition("\n")[0]: section.strip("\n") for section in sections}
    for table in tables:
        _, *lines = texts.get(table.title, "").split("\n")
        paragraphs = "\n".join(itertools.dropwhile(_is_of_a_table, lines))
        written = table.markdown(machine).removeprefix(_HEADING)
        texts[table.title] = f"{written}\n\n{paragraphs}" if paragraphs else written
    whole = [head.strip("\n"), *(_HEADING + text for text in texts.values())]
    return "\n\n".join(whole).lstrip("\n") + "\n"


def _is_of_a_table(line: str) -> bool:
    """Whether a line of a section is one of those that `Table.markdown` writes."""
    return not line or line.startswith(("|", "- ", "Python "))


def describe_machine() -> str:
    """Returns where and when this runs, in one line."""
    optimized = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    build = f"{platform.python_compiler()}{', optimized by profile' if optimized else ''}"
    machine = f"Python {platform.python_version()} ({build}), {os.cpu_count()} cores, {platform.system()}"
    return f"{machine}, {datetime.now(UTC).date()}; load average before the start {os.getloadavg()[0]:.1f}."


def milliseconds(seconds: float) -> str:
    """Returns a duration in milliseconds with one decimal."""
    return f"{seconds * 1000:.1f}"
