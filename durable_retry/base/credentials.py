r"""Credentials of the app's own, taken out of texts in whatever form they are written there.

    Credentials(["Bearer sesame/open"]).masked('sent "sesame\\/open" and sesame%2Fopen')
    # sent "***" and ***

A dependency that echoes what it was sent writes it as JSON, HTML or a URL does, and any of these inside of
another. So a credential is looked for character by character, each in all its forms; and as a whole in hex
and base64, wherever it stands in what was packed. Where a text has signs of a coding that puts something
between these (broken lines, bytes of UTF-16), it is searched once more as it reads without.
"""

import base64
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from html.entities import html5
from typing import Any, Final

from durable_retry.base.documents import changed_json
from durable_retry.base.text import MASK
from durable_retry.base.validation import pointer_of

_FEWEST_CHARS: Final = 6
"""A shorter value protects nothing, and masking it would riddle innocent text."""

_FEWEST_CUT_CHARS: Final = 4
"""Fewer characters at the end of a cut text say nothing of a credential."""

_SOUGHT_CHARS: Final = 24
"""Characters that one pattern searches for; the rest is compared one by one, since a pattern of 2,000
characters takes seconds to compile."""

_MOST_CHARS_OF_FORM: Final = 48
"""The longest form of one character, such as `&amp;amp;amp;#x0000002f;`."""

_MOST_DEPTH: Final = 100
"""Levels of a document that are looked at; what lies deeper is masked."""

_PERCENT: Final = "%(?:25){0,3}"
_MOST_BACKSLASHES: Final = 32  # of JSON in JSON, five times
_BACKSLASHES: Final = rf"(?:\\|{_PERCENT}5[cC]){{1,{_MOST_BACKSLASHES}}}+"
_AND: Final = f"(?:&|{_PERCENT}26)"
_HASH: Final = f"(?:#|{_PERCENT}23)"
_SEMICOLON: Final = f"(?:;|{_PERCENT}3[bB])"
"""What the forms are made of, in a URL too."""

_NO_FORM: Final = r"(?!u[0-9A-Fa-f]{4}|u\{|U[0-9A-Fa-f]{8}|x[0-9A-Fa-f]{2}|[0-3][0-7]{2})"
"""Behind a backslash that does not begin the form of a character."""

_LINE_END: Final = r"(?:\r?\n|(?:\\{1,7}r)?\\{1,7}n)"
_CODED: Final = re.compile(
    rf"""[\0\\=\r\n](?:  # the class alone decides at most places
        (?<=\0)|(?<=\\)\\{{0,6}}(?:u0000|x00|0(?![0-9]))
        |(?<==)[ \t]*{_LINE_END}
        |(?<=[\w+/=-]{{16}}[\r\n\\])(?:(?<=\r)\n|(?<=\n)|(?<=\\)\\{{0,6}}(?:r\\{{1,7}})?n)(?=[\w+/=-])
        |(?<==)(?P<hex>[0-7][0-9A-Fa-f]))""",
    re.VERBOSE,
)
"""Zero bytes of UTF-16, broken lines of base64 and quoted-printable, and characters of the latter."""

_PART: Final = re.compile(r"\\+|[^\\]")
"""A character, or some backslashes: how many stand for one is not known."""

_ENCODES: Final = re.compile(r"[%\\&+]")
_CUT_FORM: Final = re.compile(r"(?:%u?[0-9A-Fa-f]*|\\+[uUx]?\{?[0-9A-Fa-f]*|&[#\w;]*)?")
"""What may be left of a character's form at the end of a cut text."""


class Credentials:
    """The credentials that one dependency is sent.

    Attributes:
        most_chars: The most that one of them takes in a text, in its longest form.
    """

    def __init__(self, header_values: Iterable[str]) -> None:
        texts = {part for value in header_values for part in _parts_of(value) if len(part) >= _FEWEST_CHARS}
        # The longest first: one may be part of another.
        self._sought = [_Sought(text) for text in sorted(texts, key=len, reverse=True)]
        self.most_chars = _MOST_CHARS_OF_FORM * max(map(len, texts), default=0)

    def masked(self, text: str, *, is_cut: bool = False) -> str:
        """Return a text without them; of JSON, only the texts in it change.

        Args:
            is_cut: Whether more followed the text: then the beginning of a credential at its end is masked.
        """
        masked = self._masked_as_written(text, is_cut=is_cut)
        if masked == text:
            return text
        return changed_json(text, lambda document: self.without(document)[0]) or masked

    def without(self, document: Any, text: str | None = None) -> tuple[Any, list[str]]:
        """Return a JSON document without them, and JSON pointers to the values that had one.

        Args:
            text: Its JSON text where that is at hand; to find nothing in it takes a tenth of the time.
        """
        if not self._sought or (text is not None and self._masked_as_written(text, is_cut=False) == text):
            return document, []
        pointers: list[str] = []
        return self._without((), document, pointers), pointers

    def _without(self, path: tuple[str | int, ...], value: Any, pointers: list[str]) -> Any:
        if isinstance(value, Mapping | list) and len(path) > _MOST_DEPTH:
            pointers.append(pointer_of(*path))
            return MASK
        if isinstance(value, Mapping):
            members = {}
            for name, member in value.items():
                members[self._without(path, name, pointers)] = self._without((*path, name), member, pointers)
            return members
        if isinstance(value, list):
            return [self._without((*path, index), item, pointers) for index, item in enumerate(value)]
        # A credential of digits may come as a number.
        text = value if isinstance(value, str) else str(value)
        if (masked := self.masked(text)) == text:
            return value
        pointers.append(pointer_of(*path))
        return masked

    def _masked_as_written(self, text: str, *, is_cut: bool) -> str:
        is_encoded = _ENCODES.search(text) is not None
        for sought in self._sought:
            for written in sought.texts:
                text = text.replace(written, MASK)
            if is_encoded:
                text = sought.out_of(text)
            if is_cut:
                text = sought.out_of_end(text)
        return self._masked_as_decoded(text, is_cut=is_cut) if _is_coded(text) else text

    def _masked_as_decoded(self, text: str, *, is_cut: bool) -> str:
        """Return a text without what is a credential only when it is read as one of `_CODED`."""
        decoded = _Decoded(text)
        places = [place for sought in self._sought for place in sought.places(decoded.text, is_cut=is_cut)]
        pieces, end = [], 0
        for begin, after in sorted(places):
            if decoded.place_of(begin) >= end:
                pieces += [text[end : decoded.place_of(begin)], MASK]
            end = max(end, decoded.place_of(after))
        return "".join([*pieces, text[end:]])


def _parts_of(value: str) -> list[str]:
    """Return the value of a header, and what in it is a credential by itself."""
    scheme, _, rest = value.partition(" ")
    parts = [value, rest, value.rpartition(" ")[2]]
    if scheme.lower() == "basic":
        pair = _decoded(rest)
        parts += [pair, pair.partition(":")[2]]
    if "=" in value and ";" in value:  # cookies
        parts += [pair.partition("=")[2].strip() for pair in value.split(";")]
    return parts


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except ValueError:
        return ""


class _Decoded:
    """A text as it reads where it is decoded, and the places from which its characters came."""

    def __init__(self, text: str) -> None:
        pieces, end, length = [], 0, 0
        self._begins, self._places = [0], [0]
        for coded in _CODED.finditer(text):
            pieces += [text[end : coded.start()], chr(int(coded["hex"], 16)) if coded["hex"] else ""]
            length += sum(map(len, pieces[-2:]))
            end = coded.end()
            self._begins.append(length)
            self._places.append(end)
        self.text = "".join([*pieces, text[end:]])

    def place_of(self, at: int) -> int:
        """Return where a character of the decoded text begins in the text itself."""
        index = bisect_right(self._begins, at) - 1
        return self._places[index] + at - self._begins[index]


def _is_coded(text: str) -> bool:
    # Four quick looks: most texts have none of the characters with which a coding begins.
    has_sign = "=" in text or "\\" in text or "\n" in text or "\0" in text
    return has_sign and _CODED.search(text) is not None


class _Sought:
    """One credential, in whatever form its characters have."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.texts = (text, *_packed_forms(text.encode()))
        self._forms = [_form_of(part) for part in _PART.findall(text)]
        self._begin = _pattern_of(text[:_SOUGHT_CHARS])
        self._cut_begin = _pattern_of(text[:_FEWEST_CUT_CHARS])

    def out_of(self, text: str) -> str:
        """Return a text without it where its characters are written in forms of theirs."""
        pieces, end = [], 0
        for begin, after in self._encoded_places(text):
            pieces += [text[end:begin], MASK]
            end = after
        return "".join([*pieces, text[end:]])

    def out_of_end(self, text: str) -> str:
        """Return a text without what is left of it at the end."""
        begin = self._begin_of_end(text)
        return text if begin == len(text) else text[:begin] + MASK

    def places(self, text: str, *, is_cut: bool) -> list[tuple[int, int]]:
        """Return where it begins and ends in a text, in whatever form."""
        places = [found.span() for form in self.texts for found in re.finditer(re.escape(form), text)]
        if _ENCODES.search(text) is not None:
            places += self._encoded_places(text)
        if is_cut and (begin := self._begin_of_end(text)) < len(text):
            places.append((begin, len(text)))
        return places

    def _encoded_places(self, text: str) -> Iterator[tuple[int, int]]:
        end = 0
        while begun := self._begin.search(text, end):
            chars, after = self._follow(text, begun.start())
            is_whole = chars == len(self._forms)
            end = after if is_whole else begun.start() + 1
            if is_whole:
                yield begun.start(), after

    def _begin_of_end(self, text: str) -> int:
        """Return where the beginning of it begins with which a text ends; the text's length for none."""
        for chars in range(len(self.text) - 1, _FEWEST_CUT_CHARS - 1, -1):
            if text.endswith(self.text[:chars]):
                return len(text) - chars
        window = max(0, len(text) - _MOST_CHARS_OF_FORM * len(self.text))
        for begun in self._cut_begin.finditer(text, window):
            _, after = self._follow(text, begun.start())
            if _CUT_FORM.fullmatch(text, after):
                return begun.start()
        return len(text)

    def _follow(self, text: str, begin: int) -> tuple[int, int]:
        """Return how many of its characters stand at a place, and the place behind them."""
        end = begin
        for chars, form in enumerate(self._forms):
            following = form.match(text, end)
            if following is None:
                return chars, end
            end = following.end()
        return len(self._forms), end


def _packed_forms(content: bytes) -> set[str]:
    """Return bytes in hex and in base64, there without the characters that their neighbours share."""
    forms = {content.hex(), content.hex().upper()}
    for before in range(3):  # base64 packs three bytes at a time
        packed = base64.b64encode(bytes(before) + content)
        own = packed[-(-8 * before // 6) : 8 * (before + len(content)) // 6].decode()
        forms |= {own, own.replace("+", "-").replace("/", "_")}
    return forms


def _pattern_of(text: str) -> re.Pattern[str]:
    # At most places one look says that no form begins there.
    begins = rf"(?=[%&+\\{re.escape(text[0])}])"
    return re.compile(begins + "".join(map(_form_pattern, _PART.findall(text))))


@cache
def _form_of(part: str) -> re.Pattern[str]:
    return re.compile(_form_pattern(part))


@cache
def _form_pattern(part: str) -> str:
    """Return a pattern of a part as JSON, Python, HTML, XML or a URL writes it, and each inside another.

    The forms are tried once at each place (`(?>`), so that no text makes the search slow.
    """
    char, count = part[0], len(part)
    code, bytes_ = ord(char), char.encode()
    units = [int.from_bytes(char.encode("utf-16-be")[at : at + 2]) for at in range(0, _units_of(char), 2)]
    names = "".join(f"|{name}" for name in _names_of_entities().get(char, ()))
    number = f"{_HASH}(?:0{{0,6}}{code}|[xX]0{{0,6}}{_hex_pattern(f'{code:x}')})"
    pair = f"{_BACKSLASHES}u".join(_hex_pattern(f"{unit:04x}") for unit in units)
    escaped = [
        rf"{_BACKSLASHES}(?:u{pair}|U{_hex_pattern(f'{code:08x}')}|u\{{0{{0,6}}{_hex_pattern(f'{code:x}')}\}})",
        "".join(rf"{_BACKSLASHES}x{_hex_pattern(f'{byte:02x}')}" for byte in bytes_),
        "".join(rf"{_BACKSLASHES}{byte:03o}" for byte in bytes_),
    ]
    plain = [
        rf"{_AND}(?:amp{_SEMICOLON}){{0,3}}(?:{number}{names}){_SEMICOLON}",
        "".join(rf"{_PERCENT}{_hex_pattern(f'{byte:02x}')}" for byte in bytes_),
        "".join(rf"{_PERCENT}u{_hex_pattern(f'{unit:04x}')}" for unit in units),
        re.escape(char),
        *([r"\+"] if char == " " else []),
    ]
    if char == "\\":
        # One that begins the next character's form is none of these.
        some = f"(?:{'|'.join([*escaped, *plain])}){_NO_FORM}"
        return f"(?>(?:{some}){{{count},{count + _MOST_BACKSLASHES}}})"
    # The backslash in front of / and quotes, and more where JSON stands in JSON.
    before = "" if char.isalnum() else f"(?:{_BACKSLASHES})?"
    return f"(?>{'|'.join(escaped)}|{before}(?:{'|'.join(plain)}))"


def _units_of(char: str) -> int:
    return len(char.encode("utf-16-be"))


def _hex_pattern(digits: str) -> str:
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in digits)


@cache
def _names_of_entities() -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for name, char in html5.items():
        if name.endswith(";"):
            names.setdefault(char, []).append(name[:-1])
    return names
