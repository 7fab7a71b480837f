r"""The constraints that a route parameter can carry: `{id:int}`, `{code:regex(^\d{{3}}$)}`."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from uuid import UUID

from onebox.errors import CannotStartError

Check = Callable[[str], bool]

_INTEGER = re.compile(r"[+-]?\d{1,19}")
_INT_LIMIT, _LONG_LIMIT = 2**31, 2**63


class RouteError(CannotStartError):
    """A route template is malformed."""


def check_for(name: str, argument: str | None, template: str) -> Check:
    """Return what tells whether a value satisfies a constraint.

    Args:
        name: Lower case.
        argument: What stands in its parentheses; None without.
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
    "decimal": _converts(Decimal),
    "double": _converts(float),
    "float": _converts(float),
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
