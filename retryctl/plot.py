"""The waits of a policy, drawn with characters."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from retryctl.tables import span

WIDTH: Final = 60
_MAX_ROWS: Final = 20


def waits_plot(waits: Sequence[Mapping[str, Any]]) -> str:
    """Draw each wait as a line from its least to its most, an `o` where it is expected.

    Args:
        waits: As the API previews them, at least one; the first 20 are drawn.
    """
    drawn = waits[:_MAX_ROWS]
    longest = max(each["most_seconds"] for each in drawn) or 1.0
    digits = len(str(drawn[-1]["after_attempt"]))
    lines = [f"{each['after_attempt']:>{digits}} |{_line(each, longest)}" for each in drawn]
    end = span(longest)
    scale = f"{' ' * digits} +{'-' * (WIDTH + 1)}\n{' ' * digits}  0{end:>{WIDTH}}"
    rest = f"\n(and {len(waits) - len(drawn)} more)" if len(waits) > len(drawn) else ""
    return "\n".join([*lines, scale]) + rest


def _line(wait: Mapping[str, Any], longest: float) -> str:
    least, expected, most = (
        round(wait[f"{name}_seconds"] / longest * WIDTH) for name in ("least", "expected", "most")
    )
    letters = [" "] * (WIDTH + 1)
    letters[least : most + 1] = "-" * (most + 1 - least)
    letters[least] = letters[most] = "|"
    letters[expected] = "o"
    return "".join(letters).rstrip()
