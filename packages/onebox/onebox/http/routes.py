r"""Azure route templates: `orders/{id:int}/{part?}`, `files/{*path}`.

They are ASP.NET Core's: constraints such as `{code:regex(^\d{{3}}$)}`, optional parameters, defaults and
catch-alls. Matching ignores case. No template is preferred for being more exact: see `functions.endpoints`.
Source: "Routing in ASP.NET Core", Microsoft Learn.
"""

import functools
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import InvalidOperation
from urllib.parse import unquote
from uuid import UUID

from onebox import CannotStartError
from onebox.numbers import decimal_number

Check = Callable[[str], bool]

# A parameter name, constraints (whose arguments may hold braces doubled and slashes), then `?` or `=default`.
_PARAMETER = re.compile(
    r"\{(?P<star>\*{0,2})(?P<name>[^:=?{}*]+)"
    r"(?P<constraints>(?::(?:[a-zA-Z]+)(?:\((?:[^{}]|\{\{|\}\})*?\))?)*)"
    r"(?P<optional>\?)?(?:=(?P<default>[^{}]*))?\}"
)
_CONSTRAINT = re.compile(r":(?P<name>[a-zA-Z]+)(?:\((?P<argument>.*?)\))?(?=:[a-zA-Z]|$)")

_FIRST = 2  # segments that are looked up: as a rule the prefix of all routes, and the first word behind it

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_INT_LIMIT, _LONG_LIMIT = 2**31, 2**63


class RouteError(CannotStartError):
    """A route template is malformed."""


def check_for(name: str, argument: str | None, template: str) -> Check:
    """Return the predicate of a constraint.

    Args:
        name: Lower case.
        argument: The text in its parentheses; None without parentheses.
        template: The whole route, for the error.

    Raises:
        RouteError: There is no such constraint, or its argument is malformed.
    """
    if name in _SIMPLE_CHECKS and argument is None:
        return _SIMPLE_CHECKS[name]
    try:
        if name in _ARGUMENT_CHECKS and argument is not None:
            return _ARGUMENT_CHECKS[name](argument)
    except (ValueError, re.error) as mistake:
        raise RouteError(f"route {template!r}: constraint {name}({argument}): {mistake}") from None
    raise RouteError(f"route {template!r}: unknown constraint {name!r}")


def _integer_within(limit: int) -> Check:
    return lambda value: bool(_INTEGER.fullmatch(value)) and -limit <= int(value) < limit


def _converts(convert: Callable[[str], object]) -> Check:
    def check(value: str) -> bool:
        try:
            convert(value)
        except (ValueError, InvalidOperation):
            return False
        return True

    return check


def _length_between(least: int, most: int | None) -> Check:
    return lambda value: len(value) >= least and (most is None or len(value) <= most)


def _length(argument: str) -> Check:
    least, _, most = argument.partition(",")
    return _length_between(int(least), int(most or least))


def _number_between(least: int | None, most: int | None) -> Check:
    def check(value: str) -> bool:
        if not _INTEGER.fullmatch(value):
            return False
        return (least is None or int(value) >= least) and (most is None or int(value) <= most)

    return check


def _number_range(argument: str) -> Check:
    least, most = (int(part) for part in argument.split(","))
    return _number_between(least, most)


def _regex(argument: str) -> Check:
    pattern = re.compile(argument.replace("{{", "{").replace("}}", "}"), re.IGNORECASE)
    return lambda value: pattern.search(value) is not None


_SIMPLE_CHECKS: Mapping[str, Check] = {
    "int": _integer_within(_INT_LIMIT),
    "long": _integer_within(_LONG_LIMIT),
    "bool": lambda value: value.lower() in {"true", "false"},
    "datetime": _converts(datetime.fromisoformat),
    **dict.fromkeys(("decimal", "double", "float"), lambda value: decimal_number(value) is not None),
    "guid": _converts(UUID),
    "alpha": lambda value: value.isascii() and value.isalpha(),
    "required": bool,
}
_ARGUMENT_CHECKS: Mapping[str, Callable[[str], Check]] = {
    "minlength": lambda argument: _length_between(int(argument), None),
    "maxlength": lambda argument: _length_between(0, int(argument)),
    "length": _length,
    "min": lambda argument: _number_between(int(argument), None),
    "max": lambda argument: _number_between(None, int(argument)),
    "range": _number_range,
    "regex": _regex,
}


@dataclass(frozen=True)
class _Parameter:
    name: str
    checks: tuple[Check, ...]
    optional: bool
    default: str | None

    def accepts(self, value: str) -> bool:
        return all(check(value) for check in self.checks)


@dataclass(frozen=True)
class _Segment:
    pattern: re.Pattern[str]
    parameters: tuple[_Parameter, ...]
    alone: bool
    catch_all: bool = False
    word: str = ""  # all of it in lower case, if that is ASCII text without parameters and escapes

    @property
    def may_be_absent(self) -> bool:
        return self.catch_all or (len(self.parameters) == 1 and self._gives_way(self.parameters[0]))

    @staticmethod
    def _gives_way(parameter: _Parameter) -> bool:
        return parameter.optional or parameter.default is not None

    @property
    def takes_anything(self) -> bool:
        return self.alone and not self.parameters[0].checks

    def match(self, text: str) -> dict[str, str] | None:
        found = self.pattern.fullmatch(text)
        if found is None or not self.parameters:
            return None if found is None else {}
        values = {each.name: found[f"p{index}"] for index, each in enumerate(self.parameters)}
        return values if all(each.accepts(values[each.name]) for each in self.parameters) else None

    def defaults(self) -> dict[str, str]:
        return {each.name: each.default for each in self.parameters if each.default is not None}


@dataclass(frozen=True)
class RouteTemplate:
    """One template, ready to match paths.

    Attributes:
        text: As written, without slashes at its ends.
        segments: What it is made of.
    """

    text: str
    segments: tuple[_Segment, ...]

    @classmethod
    def parse(cls, text: str) -> "RouteTemplate":
        """Parse a template.

        Raises:
            RouteError: A brace is unbalanced, a constraint is unknown, or a catch-all is not last.
        """
        stripped = text.strip("/")
        segments = tuple(_parse_segment(part, text) for part in _split(stripped)) if stripped else ()
        if any(segment.catch_all for segment in segments[:-1]):
            raise RouteError(f"route {text!r}: a catch-all must come last")
        return cls(stripped, segments)

    @functools.cached_property
    def _lengths(self) -> tuple[int, float]:
        """The fewest and the most segments of a path that can match."""
        needed = [at for at, segment in enumerate(self.segments, 1) if not segment.may_be_absent]
        ends_open = bool(self.segments) and self.segments[-1].catch_all
        return max(needed, default=0), math.inf if ends_open else len(self.segments)

    def takes(self, segments: int) -> bool:
        """Whether a path of so many segments can match."""
        fewest, most = self._lengths
        return fewest <= segments <= most

    @functools.cached_property
    def first_words(self) -> tuple[str, ...]:
        """The words of the first segments, by which templates are told apart; "" for any other segment."""
        return tuple(segment.word for segment in self.segments[:_FIRST])

    def may_begin_with(self, words: Sequence[str]) -> bool:
        """Whether a path can match whose first segments are these words; "" stands for any text."""
        return all(
            mine in ("", word) or not word for mine, word in zip(self.first_words, words, strict=False)
        )

    def hides(self, other: "RouteTemplate") -> bool:
        """Whether every path of another template, its optional parts present, matches this one, too."""
        if not self.takes(len(other.segments)):
            return False
        texts = list(_split(other.text)) if other.segments else []
        for index, (text, segment) in enumerate(zip(texts, other.segments, strict=True)):
            mine = self.segments[min(index, len(self.segments) - 1)]
            if mine.takes_anything:
                continue
            if segment.parameters or mine.match(unquote(text)) is None:
                return False
        return True

    def match(self, parts: Sequence[str]) -> dict[str, str] | None:
        """Return the route parameters of a path; None when it does not match.

        Args:
            parts: The path's segments, percent-encoded; see `split_path`.
        """
        if not self.takes(len(parts)):
            return None
        values: dict[str, str] = {}
        for index, segment in enumerate(self.segments):
            if index >= len(parts):
                if segment.catch_all and segment.parameters[0].checks:
                    return None  # Without a value it meets no constraint (`RegexRouteConstraint.Match`).
                values |= segment.defaults()
                continue
            found = segment.match(unquote("/".join(parts[index:]) if segment.catch_all else parts[index]))
            if found is None:
                return None
            values |= found
        return values


def first_words(parts: Sequence[str], known: Collection[str]) -> tuple[str, ...]:
    """Return the first segments of a path, "" for each that is none of the known words of templates."""
    return tuple(word if (word := part.lower()) in known else "" for part in parts[:_FIRST])


def split_path(path: str) -> list[str]:
    """Return the segments of a path, with or without slashes at its ends."""
    return [part for part in path.split("/") if part]


def _split(text: str) -> Iterable[str]:
    """Split at the slashes outside of braces (a regex constraint may hold one)."""
    depth, start = 0, 0
    for index, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if character == "/" and depth == 0:
            yield text[start:index]
            start = index + 1
    yield text[start:]


def _parse_segment(text: str, template: str) -> _Segment:
    pieces: list[str] = []
    parameters: list[_Parameter] = []
    end = stars = 0
    for found in _PARAMETER.finditer(text):
        pieces.append(_literal(text[end : found.start()], template))
        whole = "(?s:.*)" if found["star"] else "(?s:.+?)"
        pieces.append(f"(?P<p{len(parameters)}>{whole})")
        parameters.append(_parse_parameter(found, template))
        stars += bool(found["star"])
        end = found.end()
    pieces.append(_literal(text[end:], template))
    pattern = re.compile("".join(pieces), re.IGNORECASE)
    alone = len(parameters) == 1 and not pieces[0] and not pieces[-1]
    is_word = not parameters and text.isascii() and "%" not in text
    return _Segment(pattern, tuple(parameters), alone, bool(stars), text.lower() if is_word else "")


def _literal(text: str, template: str) -> str:
    if "{" in text or "}" in text:
        raise RouteError(f"route {template!r}: cannot read {text!r}")
    return re.escape(unquote(text))


def _parse_parameter(found: re.Match[str], template: str) -> _Parameter:
    checks = [
        check_for(each["name"].lower(), each["argument"], template)
        for each in _CONSTRAINT.finditer(found["constraints"])
    ]
    return _Parameter(found["name"], tuple(checks), bool(found["optional"]), found["default"])
