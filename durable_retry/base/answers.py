"""Documents that the API answers with (docs/decisions/http-framework.md), also for unreadable records.

A record that cannot be read is damaged, of a later version, or put there by somebody else:

    record = read_or(lambda: Alert.from_json_text(row["alert"]), lambda reason: stand_in(row, reason))

Nothing that comes from storage or from the task hub is sure to be ours: a failed instance's output is plain
text, and anybody may write a custom status or a row. Code that reads many of them reads each by `read_or`:
one that cannot be read is shown as far as it is known, with the reason, and does not hide the others.
"""

import json
from collections.abc import Callable, Mapping
from operator import not_
from typing import Annotated, Any, Final, Self, override

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticSerializationError

from durable_retry.base.json_forms import is_none
from durable_retry.base.validation import Problem

CAUSES: Final = (
    ArithmeticError,  # an instant beyond the calendar
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,  # also of JSON, of pydantic and of UTF-8
)
"""What reading a document can raise when it is not as it should be."""

_REASON_CHARS: Final = 300

UNREADABLE: Final = "unreadable"
"""Member of a document that says why its stored form cannot be read."""

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
    """Return what `read` returns, or a stand-in where that cannot be read.

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


is_empty: Final = not_
"""Whether a member has nothing to say: the test of members that are left out then."""


def left_out(description: str) -> Any:
    """Describe a member that is left out while it is None, as it is by default."""
    return Field(default=None, exclude_if=is_none, description=description)


class Answer(BaseModel):
    """Base of the documents that the API answers with.

    Unknown members are ignored: a client reads what a later version answers.
    """

    # A process builds the models that it uses: all of them would be a tenth of an app's start.
    model_config = ConfigDict(
        strict=True, frozen=True, validate_by_name=True, validate_by_alias=True, defer_build=True
    )

    @classmethod
    def taken_from(cls, source: object, **more: Any) -> Self:
        """Return what is shown of an object: its attributes with the names of members, and more."""
        names = _names_in_both.get((cls, type(source)))
        if names is None:
            names = tuple(name for name in cls.model_fields if hasattr(source, name))
            _names_in_both[cls, type(source)] = names
        return cls(**{name: getattr(source, name) for name in names if name not in more}, **more)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Read a document as it was written, by this version or another; ValueError where it is none."""
        return cls.model_validate(document, strict=False)

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True)

    def to_text(self) -> str:
        """Return the text of what `to_json` returns, in half the time."""
        try:
            return self.model_dump_json(by_alias=True)
        except PydanticSerializationError:  # half a surrogate pair, which callers may send, has no UTF-8 form
            return json.dumps(self.to_json())


_names_in_both: Final[dict[tuple[type, type], tuple[str, ...]]] = {}
"""By an answer's class and a source's, the names that both have: to find them takes most of the time."""


class ProblemDocument(Answer):
    """Why a request was refused (RFC 9457)."""

    type: str
    title: str
    status: Annotated[int, Field(ge=400, le=599)]
    detail: str
    errors: tuple[Problem, ...] = Field(
        default=(), exclude_if=is_empty, description="Left out unless the input is invalid."
    )


class Page[T](Answer):
    """A page of a list; `next_cursor` is null on the last one."""

    items: tuple[T, ...]
    next_cursor: str | None = None

    @classmethod
    @override
    def model_parametrized_name(cls, params: tuple[Any, ...]) -> str:
        return f"{params[0].__name__.removesuffix('Document')}Page"


type Instant = Annotated[
    AwareDatetime,
    WithJsonSchema({"type": "string", "format": "date-time", "description": "RFC 3339, UTC, with Z."}),
]
"""An aware UTC instant of an answer."""
