"""What a dependency's `classify` says of an answer or of an exception, over the built-in table."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from durable_retry.base.json_forms import is_same_json
from durable_retry.base.names import Category
from durable_retry.base.validation import pointed_at

type Scalar = str | int | float | bool
"""A value that a rule compares with."""


@dataclass(frozen=True, slots=True)
class AnswerRule:
    """A rule on an answer: its header, or a part of its JSON, has this value.

    Attributes:
        category: What the answer is then.
        equals: The value.
        status: Of answers with this status only; None means of any.
        pointer: JSON pointer of the part of the body; None where it looks at a header.
        header: The header's name; None where it looks at the body.
    """

    category: Category
    equals: Scalar
    status: int | None = None
    pointer: str | None = None
    header: str | None = None

    def fits(self, status_code: int, headers: Mapping[str, str], document: Callable[[], Any]) -> bool:
        """Whether an answer is as it says; names of headers are in lower case."""
        if self.status not in {None, status_code}:
            return False
        if self.header is not None:
            return headers.get(self.header.lower()) == self.equals
        values = pointed_at(document(), self.pointer or "")
        return any(is_same_json(value, self.equals) for value in values)


type Rules = Mapping[str, Category | AnswerRule]
"""By status code, name of an exception, or the name of a rule."""

NO_RULES: Final[Rules] = MappingProxyType({})


def ruled_answer(
    rules: Rules, status_code: int, headers: Mapping[str, str], document: Callable[[], Any]
) -> Category | None:
    """Return what the rules say of an answer, those on its content first; None where they say nothing.

    Args:
        document: Returns the body as JSON; None where it is none. It is called where a rule looks at it.
    """
    for rule in rules.values():
        if isinstance(rule, AnswerRule) and rule.fits(status_code, headers, document):
            return rule.category
    return ruled_name((str(status_code),), rules)


def ruled_name(names: Iterable[str], rules: Rules) -> Category | None:
    """Return what the rules say of the first of some names that they have; None where they have none."""
    values = (rules[name] for name in names if name in rules)
    return next((category for category in values if isinstance(category, Category)), None)
