"""Text: cut for a person, hashed in place of a random draw, or kept secret."""

import base64
import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, override

CUT_MARK: Final = "... (cut)"

DATA_PREFIX: Final = "data:application/octet-stream;base64,"
"""Begins the text of bytes that are no text."""


def kept_text(content: bytes) -> str:
    """Return bytes as a text that can be stored: as it is, or in base64 when it is not UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return DATA_PREFIX + base64.b64encode(content).decode()


def kept_bytes(text: str) -> bytes:
    """Undo `kept_text`; characters without a UTF-8 form, which a person may have written, are replaced."""
    if not text.startswith(DATA_PREFIX):
        return text.encode("utf-8", "replace")
    try:
        return base64.b64decode(text.removeprefix(DATA_PREFIX), validate=True)
    except ValueError:
        return text.encode()


def plain_number(text: str) -> int:
    """Read digits from 0 to 9 alone: `int` takes those of every script, and signs, spaces and underscores."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} is not digits from 0 to 9")
    return int(text)


def seconds_text(seconds: float) -> str:
    """Return a duration to the millisecond, without trailing zeros: `2 s`, `1.37 s`, `86400 s`."""
    return f"{seconds:.3f}".rstrip("0").rstrip(".") + " s"


def counted(number: float, noun: str) -> str:
    """Return `1 attempt`, `2 attempts`, `0.5 attempts`."""
    return f"{number:g} {noun}" if number == 1 else f"{number:g} {noun}s"


def names_text(names: Sequence[str], most: int) -> str:
    """Return the first names, and how many more there are: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def outcome_text(status_code: int | None, error: str | None) -> str:
    """Return what a call got: `503: no upstream`, `ReadTimeout`; "" where nothing is known."""
    return ": ".join(str(part) for part in (status_code, error) if part)


def failing_text(error: str) -> str:
    """Return an `outcome_text` to stand behind a name: `answers 503: no upstream`, `fails: ReadTimeout`."""
    if not error:
        return "fails"
    return f"answers {error}" if error[:3].isdigit() else f"fails: {error}"


def cut_text(text: str, limit: int) -> str:
    """Return at most `limit` characters, the cut marked; `limit` is at least the mark's length."""
    return text if len(text) <= limit else text[: limit - len(CUT_MARK)] + CUT_MARK


def time_text(instant: datetime) -> str:
    """Return an instant to stand in a sentence, such as `2026-11-21T21:56:03Z`.

    Views show it in the zone of their reader. A remaining time would be wrong by the time that it is read.
    """
    return f"{instant.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def paused_text(by: str, until: datetime) -> str:
    """Return why nothing is sent in a throttling pause: `paused by 429 until 2026-11-21T22:17:00Z`."""
    return f"paused by {by} until {time_text(until)}"


def mentions(words: str, *texts: str | None) -> bool:
    """Return whether each word stands in one of the texts, as a part of it and in whatever case."""
    text = "\n".join(filter(None, texts)).casefold()
    return all(word in text for word in words.casefold().split())


def may_mention(words: str, json_text: str, *texts: str) -> bool:
    """Return False when at least one word is certainly in neither a JSON text nor the other texts.

    It costs far less than parsing the JSON text. Names of fields count as text, so True may be wrong.
    """
    return _PLAIN.fullmatch(words) is None or mentions(words, json_text, *texts)


_PLAIN: Final = re.compile(r"[ !#-\[\]-~]*")
"""What JSON writes as it is."""

_RANGE = 2**64


def deterministic_fraction(*names: str) -> float:
    """Return a number in [0, 1) that depends on the names alone.

    Different names give independent, evenly distributed numbers. The same names give the same number on every
    machine and in every replay.
    """
    digest = hashlib.sha256("\x00".join(names).encode()).digest()
    # 53 bits are what a float holds; more would round up to 1.0.
    return (int.from_bytes(digest[:8]) >> 11) / (_RANGE >> 11)


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
