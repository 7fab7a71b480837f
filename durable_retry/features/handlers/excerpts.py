"""What is stored or shown of a handler's values and failures, without credentials."""

from traceback import format_exception
from typing import Any, Final

from durable_retry.attempt.excerpts import FAILURE_CHARS, credentials_of, safe_text
from durable_retry.base.foreign import look, name_of, plain_text
from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.rules.config.dependency import Dependency

_FAILURE_FRAMES: Final = 40  # the last ones, about as many as fit: to format thousands would take seconds


def refuse_credentials(document: Any, dependency: Dependency, pointer: str, text: str | None = None) -> None:
    """Refuse what a handler wants to store or send on if it holds a credential of the dependency.

    Args:
        text: See `Credentials.without`.

    Raises:
        InvalidInputError: With the place of each.
    """
    _, places = credentials_of(dependency).without(document, text)
    if places:
        detail = f"holds the credential of {dependency.name}, which is never stored or sent on"
        raise InvalidInputError(Problem(pointer + place, detail) for place in places)


def failure_traceback(error: BaseException, dependency: Dependency) -> str:
    """Return where a handler failed: the end of the traceback, without secrets."""
    entries = look(lambda: format_exception(error, limit=-_FAILURE_FRAMES), [name_of(error)])
    last: list[str] = []
    # Whole entries, and more than is kept: no credential is cut at its beginning.
    while entries and sum(map(len, last)) < 2 * FAILURE_CHARS:
        last.append(plain_text(entries.pop()))
    return safe_text("".join(reversed(last)), dependency)[-FAILURE_CHARS:]
