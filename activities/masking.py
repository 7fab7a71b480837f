"""Taking a dependency's secrets out of text that will be stored or shown."""

from typing import Final

from engine.dependency import Dependency
from engine.secret import MASK, Secret

_SHORTEST_CHARS: Final = 6
"""A shorter value is no secret worth the name, and masking it would riddle innocent text."""

_ERROR_CHARS: Final = 300


def masked(text: str, dependency: Dependency) -> str:
    """Return a text without the dependency's secrets: services do echo what they were sent."""
    for secret in _secrets(dependency):
        text = text.replace(secret, MASK)
    return text


def error_line(error: BaseException, dependency: Dependency) -> str:
    """Return one line that names an exception and what it says, without secrets."""
    message = " ".join(str(error).split())
    line = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return masked(line, dependency)[:_ERROR_CHARS]


def _secrets(dependency: Dependency) -> list[str]:
    """List secret texts, the longest first; of `Bearer abc` also the part after the scheme."""
    values = [value for value in dependency.headers.values() if isinstance(value, Secret)]
    if dependency.auth is not None:
        values.append(dependency.auth.value)
    texts = {part for value in values for part in (value.reveal(), value.reveal().rpartition(" ")[2])}
    return sorted((text for text in texts if len(text) >= _SHORTEST_CHARS), key=len, reverse=True)
