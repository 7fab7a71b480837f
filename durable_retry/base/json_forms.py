"""Stored forms: dataclasses as JSON, read and written by pydantic, and instants as texts, numbers and keys.

A class that derives from `JsonShape` is stored as an object with one member per field, in the order of the
fields; one that derives from `JsonRow` as a list of their values. A value's form follows the field's type:

    str, int, float, bool, Literal, Any        as it is; a float that was written as 10 stays 10
    datetime                                   RFC 3339 in UTC
    an enum                                    its value
    a JsonShape or a JsonRow                   its own form
    A | B, both of them JsonShape              that of the one that is named by the member `kind`
    X | None, tuple[X, ...], Mapping[str, X]   null, a list, an object; so is Counter[X]

A member that is None is left out, since most operations use few of what there is: so a field that may be None
has a default. Reading ignores unknown members and leaves missing ones to the defaults of their fields, so
that code reads what the versions before and after it wrote. What remains is an `UnreadableRecordError`. The
bounds of settings do not count here: they are for people, and change.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import partial
from operator import is_
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    Self,
    TypeAliasType,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic_core import CoreSchema, SchemaSerializer, SchemaValidator, ValidationError, core_schema

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_MICROSECOND: Final = timedelta(microseconds=1)
_OFFSET_CHARS: Final = len("+00:00")

_RFC3339: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:(?P<second>\d{2})(?:\.\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)
"""`datetime.fromisoformat` reads much more: week dates, times without seconds, digits of any script."""

_END_OF_DAY: Final = (23, 59)


def to_rfc3339(instant: datetime) -> str:
    """Write an aware instant as RFC 3339 in UTC, e.g. `2026-11-21T09:30:00.250000Z`."""
    # The zone of a naive instant would be a guess.
    if instant.tzinfo is None:
        raise ValueError("an instant needs a time zone")
    in_utc = instant if instant.tzinfo is UTC else instant.astimezone(UTC)
    return f"{in_utc.isoformat()[:-_OFFSET_CHARS]}Z"


def from_rfc3339(text: str) -> datetime:
    """Read an RFC 3339 instant, in UTC, to the microsecond; a leap second is the first of the next day.

    Raises:
        ValueError: It is no date and time with an offset, of the years 1 to 9999.
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no RFC 3339 date and time with an offset")
    is_leap = match["second"] == "60"
    written = f"{text[:17]}59{text[19:]}" if is_leap else text
    try:
        instant = datetime.fromisoformat(written.upper())
        in_utc = instant if instant.tzinfo is UTC else instant.astimezone(UTC)
        return _after_leap_second(in_utc, text) if is_leap else in_utc
    except OverflowError:  # its own offset moves it out of the years 1 to 9999
        raise ValueError(f"{text!r} is no instant of the years 1 to 9999 in UTC") from None


def _after_leap_second(second_before: datetime, text: str) -> datetime:
    if (second_before.hour, second_before.minute) != _END_OF_DAY:
        raise ValueError(f"{text!r}: a leap second ends a day in UTC")
    return second_before + timedelta(seconds=1)


def instant_in(event: Any, name: str) -> datetime | None:
    """Return the instant in a member of an external event; None where it has none.

    Anyone may send one, and in any form.
    """
    try:
        return from_rfc3339(event[name])
    except (KeyError, TypeError, ValueError):
        return None


def optional_to_rfc3339(instant: datetime | None) -> str | None:
    """As `to_rfc3339`; None stays None."""
    return None if instant is None else to_rfc3339(instant)


def optional_from_rfc3339(text: str | None) -> datetime | None:
    """As `from_rfc3339`; None stays None."""
    return None if text is None else from_rfc3339(text)


def to_ms(instant: datetime) -> int:
    """Return whole milliseconds since 1970, rounded down: the short form of an instant in stored states."""
    return (instant - _EPOCH) // _MILLISECOND


def from_ms(milliseconds: int) -> datetime:
    """Return the aware UTC instant of whole milliseconds since 1970."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


DIGITS: Final = 17
"""Digits of an instant in a key. Rows sort by their keys, in rising order, so a list with the newest first
has falling digits."""

_END_US: Final = 10**DIGITS
"""Microseconds since 1970 in the year 5138: the time from an instant until then sorts the newest first."""


def microseconds(instant: datetime) -> int:
    """Return whole microseconds since 1970 of an aware instant."""
    return (instant - _EPOCH) // _MICROSECOND


def from_microseconds(number: int) -> datetime:
    """Return the aware UTC instant of microseconds since 1970; ValueError after the year 9999."""
    try:
        return _EPOCH + number * _MICROSECOND
    except OverflowError:
        raise ValueError(f"{number} is no instant of the years 1 to 9999") from None


def oldest_first(instant: datetime) -> str:
    """Return 17 digits that sort in the order of the instants."""
    return f"{microseconds(instant):0{DIGITS}d}"


def newest_first(instant: datetime) -> str:
    """Return 17 digits that sort in reverse order of the instants."""
    return f"{_END_US - 1 - microseconds(instant):0{DIGITS}d}"


def from_newest_first(digits: str) -> datetime:
    """Return the instant of what `newest_first` returned."""
    return from_microseconds(_END_US - 1 - int(digits))


class UnreadableRecordError(ValueError):
    """A document is not the stored form of a class; the text names class, member and value."""

    def __init__(self, name: str, error: ValidationError) -> None:
        first = error.errors(include_url=False, include_context=False)[0]
        member = "/".join(map(str, first["loc"]))
        problem = f"it lacks {member!r}"
        if first["type"] != "missing":
            problem = (
                f"{member or 'it'}: {first['msg'].removeprefix('Value error, ')}: {first['input']!r:.80}"
            )
        super().__init__(f"this is no stored {name}: {problem}")


def union_from_json(union: TypeAliasType, stored: Any) -> Any:
    """Read one of several classes; UnreadableRecordError as `JsonShape.from_json`."""
    try:
        return _codec_of(union)[0].validate_python(stored)
    except ValidationError as error:
        raise UnreadableRecordError(union.__name__, error) from None


class _Stored:
    """What objects and rows have in common."""

    __slots__ = ()

    def _written(self, *, exclude_none: bool = True, exclude: tuple[str, ...] = ()) -> Any:
        serializer = _codec_of(type(self))[1]
        return serializer.to_python(
            self, mode="json", exclude_none=exclude_none, exclude={*exclude} or None, warnings=False
        )

    @classmethod
    def from_json(cls, stored: Any) -> Self:
        """Read the stored form.

        Raises:
            UnreadableRecordError: A member without a default is missing, or one is not of its type.
        """
        try:
            record: Self = _codec_of(cls)[0].validate_python(stored)
        except ValidationError as error:
            raise UnreadableRecordError(cls.__name__, error) from None
        return record


class JsonShape(_Stored):
    """Base of dataclasses that are stored as objects."""

    __slots__ = ()

    NOT_COPIED: ClassVar[tuple[str, ...]] = ()
    """Members that are JSON already and may be large: the stored form refers to their values."""

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = self._written(exclude=self.NOT_COPIED)
        for name in self.NOT_COPIED:
            if (value := getattr(self, name)) is not None:
                document[name] = value
        return document

    def to_answer(self) -> dict[str, Any]:
        """Return what an answer shows of it: null where a member is None, as other answers do."""
        document: dict[str, Any] = self._written(exclude_none=False)
        return document

    @classmethod
    def from_json_text(cls, text: str) -> Self:
        """Read the text of the stored form, in half the time of `json.loads` and `from_json`.

        Raises:
            UnreadableRecordError: As `from_json`.
            json.JSONDecodeError: It is no JSON.
        """
        try:
            record: Self = _codec_of(cls)[0].validate_json(text)
        except ValidationError:
            # Pydantic refuses texts that `json` takes, with half a surrogate pair. Others have an error here.
            return cls.from_json(json.loads(text))
        return record


class JsonRow(_Stored):
    """Base of dataclasses that are stored as lists of their values, without the names.

    In a shorter row the last members have their defaults. None at the end of a row is left out, and null
    before another value.
    """

    __slots__ = ()

    def to_json(self) -> list[Any]:
        row: list[Any] = self._written()
        return row


@dataclass(frozen=True, slots=True)
class Form:
    """How a value is stored, given in an `Annotated` type where the type alone does not say it."""

    encode: Callable[[Any], int]
    decode: Callable[[int], Any]  # ValueError where it is none


NOT_STORED: Final = object()
"""Marks a field, in an `Annotated` type, that is not stored: its default takes its place."""

type MsInstant = Annotated[datetime, Form(to_ms, from_ms)]
"""An instant that is stored as whole milliseconds since 1970, the short form of entity states."""

_CONFIG: Final = core_schema.CoreConfig(ser_json_inf_nan="constants")
"""Figures that are not finite stay so; pydantic would write null."""

_CODECS: Final[dict[Any, tuple[SchemaValidator, SchemaSerializer]]] = {}


def _codec_of(hint: Any) -> tuple[SchemaValidator, SchemaSerializer]:
    """Return what reads and writes a class; made when it is first needed, so that the app starts soon."""
    codec = _CODECS.get(hint)
    if codec is None:
        # Two threads may both come here; they make equal codecs.
        schema = _schema_of_hint(hint)
        codec = _CODECS[hint] = SchemaValidator(schema), SchemaSerializer(schema, _CONFIG)
    return codec


def _schema_of_hint(hint: Any) -> CoreSchema:
    hint, marks = _without_marks(hint)
    for form in marks:
        if isinstance(form, Form):
            written = core_schema.plain_serializer_function_ser_schema(form.encode)
            return core_schema.no_info_after_validator_function(
                form.decode, core_schema.int_schema(), serialization=written
            )
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        schema = _schema_of_union(tuple(option for option in arguments if option is not NoneType))
        return core_schema.nullable_schema(schema) if NoneType in arguments else schema
    if origin is Literal:
        return core_schema.literal_schema(list(arguments))
    if arguments:
        return _schema_of_collection(origin, arguments)
    return _schema_of_class(hint) if isinstance(hint, type) else core_schema.any_schema()


def _without_marks(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return a type without its aliases and annotations, and what these are."""
    metadata: tuple[Any, ...] = ()
    while True:
        if isinstance(hint, TypeAliasType):
            hint = hint.__value__
        elif get_origin(hint) is Annotated:
            hint, *marks = get_args(hint)
            metadata = (*metadata, *marks)
        else:
            return hint, metadata


def _schema_of_union(options: tuple[Any, ...]) -> CoreSchema:
    if len(options) == 1:
        return _schema_of_hint(options[0])
    by_kind = {_kind_of(option): _schema_of_class(option) for option in options}
    return core_schema.tagged_union_schema(by_kind, "kind")


def _kind_of(option: type[Any]) -> str:
    return next(str(field.default) for field in fields(option) if field.name == "kind")


def _schema_of_collection(kind: Any, items: tuple[Any, ...]) -> CoreSchema:
    if kind is Counter:
        counts = core_schema.dict_schema(_schema_of_hint(items[0]), core_schema.int_schema())
        return core_schema.no_info_after_validator_function(Counter, counts)
    if issubclass(kind, Mapping):
        return core_schema.dict_schema(values_schema=_schema_of_hint(items[1]))
    if items[-1] is ...:
        return core_schema.tuple_variable_schema(_schema_of_hint(items[0]))
    return core_schema.tuple_positional_schema([_schema_of_hint(item) for item in items])


def _schema_of_class(cls: type[Any]) -> CoreSchema:
    if cls in _PLAIN:
        return _PLAIN[cls]
    if issubclass(cls, Enum):
        return core_schema.enum_schema(cls, list(cls))
    if issubclass(cls, JsonRow):
        return _schema_of_row(cls)
    return _schema_of_record(cls) if issubclass(cls, JsonShape) else core_schema.any_schema()


def _schema_of_record(cls: type[Any]) -> CoreSchema:
    hints, members = get_type_hints(cls, include_extras=True), fields(cls)
    return core_schema.dataclass_schema(
        cls,
        core_schema.dataclass_args_schema(
            cls.__name__,
            [_schema_of_member(member, hints[member.name]) for member in members],
            extra_behavior="ignore",
        ),
        [member.name for member in members],
        slots="__slots__" in vars(cls),
        post_init=hasattr(cls, "__post_init__"),
    )


def _schema_of_member(member: Field[Any], hint: Any) -> core_schema.DataclassField:
    schema, is_stored = _schema_of_hint(hint), NOT_STORED not in _without_marks(hint)[1]
    if member.default_factory is not MISSING:
        schema = core_schema.with_default_schema(schema, default_factory=member.default_factory)
    elif member.default is not MISSING:
        schema = core_schema.with_default_schema(schema, default=member.default)
    return core_schema.dataclass_field(
        member.name, schema, kw_only=True, init=is_stored, serialization_exclude=not is_stored
    )


def _schema_of_row(cls: type[Any]) -> CoreSchema:
    names, schema = [field.name for field in fields(cls)], _schema_of_record(cls)

    def read(row: Any) -> Any:
        return dict(zip(names, row, strict=False)) if isinstance(row, list | tuple) else row

    def write(record: Any, to_object: Callable[[Any], dict[str, Any]]) -> list[Any]:
        written = to_object(record)
        row = [*map(written.get, names)]
        while row[-1] is None:
            row.pop()
        return row

    written = core_schema.wrap_serializer_function_ser_schema(write, schema=schema)
    return core_schema.no_info_before_validator_function(read, schema, serialization=written)


_PLAIN: Final[dict[Any, CoreSchema]] = {
    str: core_schema.str_schema(),
    int: core_schema.int_schema(),
    bool: core_schema.bool_schema(),
    # What was written as 10 is not written again as 10.0: attempts compare digests of what is stored.
    float: core_schema.union_schema([core_schema.float_schema(), core_schema.int_schema()], mode="smart"),
    # Read by the one function that refuses an instant without an offset; pydantic has a UTC of its own.
    datetime: core_schema.no_info_after_validator_function(
        from_rfc3339, core_schema.str_schema(), serialization=core_schema.simple_ser_schema("datetime")
    ),
}


def is_same_json(one: Any, other: Any) -> bool:
    """Whether two values are the same in JSON, where true is not 1 as it is in Python."""
    return bool(one == other) and isinstance(one, bool) is isinstance(other, bool)


is_none: Final = partial(is_, None)
"""Whether a member is None: the test of members that are left out then, some sixty for each operation."""
