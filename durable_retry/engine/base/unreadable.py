"""What is stored and cannot be read: damaged, of a version to come, or put there by somebody else.

    record = read_or(lambda: Alert.from_json_text(row["alert"]), lambda reason: stand_in(row, reason))

Nothing that comes from storage or from the task hub is sure to be ours: a failed instance's output is plain
text, and anybody may write a custom status or a row. Whoever reads many of them reads each by `read_or`, so
that one which cannot be read is shown as what is known of it, with the reason, and hides no other.
"""

from collections.abc import Callable
from typing import Annotated, Final

from pydantic import Field

CAUSES: Final = (
    ArithmeticError,  # an instant beyond the calendar
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,  # also of JSON, of pydantic and of UTF-8
)
"""What reading a document can raise that is not what it should be."""

_REASON_CHARS: Final = 300

UNREADABLE: Final = "unreadable"
"""Member of a shown document that says why what is stored of it cannot be read."""

type Unreadable = Annotated[
    str | None,
    Field(
        description="Why what is stored cannot be read; the other members hold what is known all the same. "
        "Left out where it can."
    ),
]


def marked(reason: str) -> dict[str, str]:
    """Return the member that marks a shown document."""
    return {UNREADABLE: reason}


def read_or[T, S](read: Callable[[], T], stand_in: Callable[[str], S]) -> T | S:
    """Return what is read; what stands for it where it cannot be read.

    `read` reads what is in memory already: an error of storage is not its own. `stand_in` takes the reason,
    one line for a person.
    """
    try:
        return read()
    except CAUSES as error:
        return stand_in(reason_of(error))


def reason_of(error: BaseException) -> str:
    """Return why something cannot be read, in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:_REASON_CHARS] if text else type(error).__name__
