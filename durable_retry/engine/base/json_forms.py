"""Stored forms: instants, frozen dataclasses as JSON, and the trace context that travels with a message.

Instants are RFC 3339 in UTC with `Z`, milliseconds since 1970, or, in keys of rows, digits that sort by time.
A class that derives from `JsonShape` is stored as an object with one member per field, in the order of the
fields. Pydantic reads and writes it; a member's form follows the field's type:

    str, int, float, bool, Literal, Any        as it is; a float that was written as 10 stays 10
    datetime                                   RFC 3339 in UTC
    an enum                                    its value
    a class with to_json and from_json         what these give
    X | None, tuple[X, ...], Mapping[str, X]   null, a list, an object

A member whose default is None is left out while it is None: most operations use few of what there is.
`Annotated[X, Form(...)]` gives a field another form or name. Reading ignores unknown members, and leaves
missing ones, and null where None is no value, to the defaults of their fields, so that code reads what the
versions before and after it wrote. What remains is an `UnreadableRecordError`.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from datetime import datetime
from enum import Enum
from functools import cache, partial
from types import NoneType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    Self,
    TypeAliasType,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic_core import (
    CoreSchema,
    PydanticKnownError,
    SchemaSerializer,
    SchemaValidator,
    ValidationError,
    core_schema,
)

from durable_retry.engine.base.instants import from_ms, from_rfc3339, to_ms

type _Convert = Callable[[Any], Any]


class UnreadableRecordError(ValueError):
    """A document is not the stored form of a class; the text names class, member and value."""

    def __init__(self, cls: type[Any], error: ValidationError) -> None:
        first = error.errors(include_url=False, include_context=False)[0]
        # Alternatives of one member have no name of their own.
        member = "/".join(str(part) for part in first["loc"] if part != "")
        problem = f"it lacks {member!r}"
        if first["type"] != "missing":
            problem = (
                f"{member or 'it'}: {first['msg'].removeprefix('Value error, ')}: {first['input']!r:.80}"
            )
        super().__init__(f"this is no stored {cls.__name__}: {problem}")


class JsonShape:
    """Base of frozen dataclasses that are stored as JSON."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        _, serializer = _codec_of(type(self))
        document: dict[str, Any] = serializer.to_python(self, mode="json", by_alias=True, warnings=False)
        return document

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read the JSON form.

        Raises:
            UnreadableRecordError: A member without a default is missing, or one is not of its type.
        """
        try:
            record: Self = _codec_of(cls)[0].validate_python(data)
        except ValidationError as error:
            raise UnreadableRecordError(cls, error) from None
        return record

    @classmethod
    def from_json_text(cls, text: str) -> Self:
        """Read the JSON form from its text, in half the time of `json.loads` and `from_json`.

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


class JsonRow:
    """Base of frozen dataclasses that are stored as lists of their members, without the names.

    A row that is shorter leaves the last members to their defaults. Members that are left out while they are
    None end the row, or are null before one that is not.
    """

    __slots__ = ()

    def to_json(self) -> list[Any]:
        """Return the stored row."""
        _, serializer = _codec_of(type(self))
        written: dict[str, Any] = serializer.to_python(self, mode="json", warnings=False)
        names = list(_names_of(type(self)))  # type: ignore[arg-type] # a class can be hashed
        while names[-1] not in written:
            names.pop()
        return [written.get(name) for name in names]

    @classmethod
    def from_json(cls, row: Iterable[Any]) -> Self:
        """Read the stored row.

        Raises:
            UnreadableRecordError: As `JsonShape.from_json`.
        """
        members = dict(zip(_names_of(cls), row, strict=False))  # type: ignore[arg-type] # as above
        try:
            read: Self = _codec_of(cls)[0].validate_python(members)
        except ValidationError as error:
            raise UnreadableRecordError(cls, error) from None
        return read


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a field is stored, given in an `Annotated` type where the type alone does not say it."""

    name: str | None = None  # the name of the member; None means the field's name
    encode: _Convert | None = None  # to JSON; None means by the type
    decode: _Convert | None = None  # from JSON; None means by the type
    is_stored: bool = True  # False leaves the field out; its default takes its place


type MsInstant = Annotated[datetime, Form(encode=to_ms, decode=from_ms)]
"""An instant that is stored as whole milliseconds since 1970, the short form of entity states."""

_CONFIG: Final = core_schema.CoreConfig(ser_json_inf_nan="constants")
"""Figures that are not finite stay so; pydantic would write null."""


@cache
def _names_of(cls: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cls))


_CODECS: Final[dict[type[Any], tuple[SchemaValidator, SchemaSerializer]]] = {}


def _codec_of(cls: type[Any]) -> tuple[SchemaValidator, SchemaSerializer]:
    """Return what reads and writes a class; made when it is first needed, so that the app starts soon."""
    codec = _CODECS.get(cls)
    if codec is None:
        # Two threads may both come here; they make equal codecs.
        schema = _schema_of_record(cls)
        codec = _CODECS[cls] = SchemaValidator(schema), SchemaSerializer(schema, _CONFIG)
    return codec


@dataclass(frozen=True, slots=True)
class _Member:
    """One field, its type without aliases and annotations, and how it is stored."""

    field: Field[Any]
    hint: Any
    form: Form

    @property
    def name(self) -> str:
        """The name of the member."""
        return self.form.name or self.field.name

    @property
    def default(self) -> Callable[[], Any] | None:
        """Makes the value of a missing member; None means that it must not be missing."""
        if self.field.default_factory is not MISSING:
            return self.field.default_factory
        value = self.field.default
        return None if value is MISSING else lambda: value


def _members_of_class(cls: type[Any]) -> Iterator[_Member]:
    hints = get_type_hints(cls, include_extras=True)
    for each in fields(cls):
        member = _Member(each, *_form_of(hints[each.name]))
        if not member.form.is_stored and member.default is None:
            raise TypeError(f"{cls.__name__}.{each.name} is not stored and has no default")
        yield member


def _form_of(hint: Any) -> tuple[Any, Form]:
    """Return a type without its aliases and annotations, and the form that one of these gives."""
    form = Form()
    while True:
        if isinstance(hint, TypeAliasType):
            hint = hint.__value__
        elif get_origin(hint) is Annotated:
            hint, *marks = get_args(hint)
            form = next((mark for mark in marks if isinstance(mark, Form)), form)
        else:
            return hint, form


def _without_none(hint: Any) -> tuple[Any, bool]:
    """Return X for `X | None`, and whether None was part of it."""
    options = get_args(hint) if NoneType in get_args(hint) else ()
    if not options:
        return hint, hint is Any
    rest = [option for option in options if option is not NoneType]
    return (rest[0] if len(rest) == 1 else Any), True


def _schema_of_record(cls: type[Any]) -> CoreSchema:
    members = list(_members_of_class(cls))
    return core_schema.dataclass_schema(
        cls,
        core_schema.dataclass_args_schema(
            cls.__name__, [_schema_of_member(member) for member in members], extra_behavior="ignore"
        ),
        [member.field.name for member in members],
        slots="__slots__" in vars(cls),
        post_init=hasattr(cls, "__post_init__"),
    )


def _schema_of_member(member: _Member) -> core_schema.DataclassField:
    form, default, schema = member.form, member.default, _schema_of_hint(member.hint, member.form)
    if default is not None:
        if not _without_none(member.hint)[1]:
            # Null stands for absence where the field takes no None.
            absent = core_schema.no_info_plain_validator_function(partial(_default_when_null, default))
            schema = core_schema.union_schema([(schema, ""), (absent, "")], mode="left_to_right")
        # A value is taken as it is, without a call: most members of most records are left to their defaults.
        own = member.field.default
        given = {"default_factory": default} if own is MISSING else {"default": own}
        schema = core_schema.with_default_schema(schema, **given)
    return core_schema.dataclass_field(
        member.field.name,
        schema,
        kw_only=True,
        init=form.is_stored,
        validation_alias=member.name,
        serialization_alias=member.name,
        serialization_exclude=not form.is_stored,
        serialization_exclude_if=is_none if member.field.default is None else None,
    )


def is_none(value: Any) -> bool:
    """Return whether a member is None: the test of members that are left out then."""
    return value is None


def _default_when_null(default: Callable[[], Any], value: Any) -> Any:
    if value is None:
        return default()
    raise PydanticKnownError("none_required")


def _schema_of_hint(hint: Any, form: Form) -> CoreSchema:
    inner, takes_none = _without_none(hint)
    inner, own = _form_of(inner)
    decode, encode = form.decode or own.decode, form.encode or own.encode
    schema = _schema_of_type(inner) if decode is None else _read_by(decode)
    if encode is not None:
        schema = _written_by(schema, core_schema.plain_serializer_function_ser_schema(encode))
    return core_schema.nullable_schema(schema) if takes_none and inner is not Any else schema


def _schema_of_type(hint: Any) -> CoreSchema:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return core_schema.literal_schema(list(arguments))
    if origin is tuple:
        return core_schema.tuple_variable_schema(_schema_of_hint(*_form_of(arguments[0])))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return core_schema.dict_schema(values_schema=_schema_of_hint(*_form_of(arguments[1])))
    return _schema_of_class(hint) if isinstance(hint, type) else core_schema.any_schema()


def _schema_of_class(cls: type[Any]) -> CoreSchema:
    if cls in _PLAIN:
        return _PLAIN[cls]
    if issubclass(cls, Enum):
        return core_schema.enum_schema(cls, list(cls))
    if _is_record(cls):
        return _schema_of_record(cls)
    if not hasattr(cls, "from_json"):
        return core_schema.any_schema()
    own = core_schema.plain_serializer_function_ser_schema(cls.to_json)
    return _written_by(_read_by(cls.from_json), own)


def _read_by(decode: _Convert) -> CoreSchema:
    """Read by a function, which takes any document for one of its own."""

    def read(document: Any) -> Any:
        try:
            return decode(document)
        except (AttributeError, LookupError, TypeError) as error:
            raise ValueError(f"cannot be read: {type(error).__name__}: {error}") from None

    return core_schema.no_info_plain_validator_function(read)


def _written_by(schema: CoreSchema, how: core_schema.SerSchema) -> CoreSchema:
    return cast("CoreSchema", {**schema, "serialization": how})


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


def _is_record(cls: type[Any]) -> bool:
    return getattr(cls, "to_json", None) is JsonShape.to_json
