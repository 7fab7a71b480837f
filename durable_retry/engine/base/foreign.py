"""Looks at objects of code that is not ours, such as the exceptions that handlers raise: none of them raises.

What an object shows of itself is code of its author: a text, an attribute, even its class.
"""

from collections.abc import Callable
from typing import Final

_TEXT_CHARS: Final = 10_000
"""More than is shown of any error; a text may be as large as the memory."""


def look[T](read: Callable[[], T], otherwise: T) -> T:
    """Return what a look gives, and `otherwise` where the look itself raises, whatever that is.

    Args:
        read: Must not await: a cancellation would be swallowed.
    """
    try:
        return read()
    except BaseException:  # noqa: BLE001 - see above: a property may call sys.exit
        return otherwise


def text_of(error: BaseException) -> str:
    """Return the beginning of an error's text."""
    return look(lambda: plain_text(error), "(its text cannot be read)")


def name_of(error: BaseException) -> str:
    """Return the name of an error's class."""
    return look(lambda: plain_text(type(error).__name__), "Exception")


def plain_text(value: object) -> str:
    """Return the beginning of an object's text as UTF-8 can carry it: half a surrogate pair is escaped."""
    # By the methods of `str`: a subclass may have others.
    beginning = str.__getitem__(str(value), slice(_TEXT_CHARS))
    return str.encode(beginning, "utf-8", "backslashreplace").decode()
