"""JSON forms of frozen dataclasses, read off their fields and type hints.

A class that derives from `JsonRecord` is stored as an object with one member per field, in the order of the
fields. A member's form follows the field's type:

    str, int, float, bool, Literal, Any        as it is
    datetime                                   RFC 3339 in UTC
    an enum                                    its value
    a class with to_json and from_json         what these give
    X | None, tuple[X, ...], Mapping[str, X]   null, a list, an object

`Annotated[X, Form(...)]` gives a field another form or name. Reading ignores unknown members, so that older
code reads what newer code wrote, and leaves missing ones to the defaults of their fields, so that newer code
reads what older code wrote.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from datetime import datetime
from enum import Enum
from operator import attrgetter
from types import NoneType
from typing import Annotated, Any, Final, Self, TypeAliasType, get_args, get_origin, get_type_hints

from durable_retry.engine.base.instants import from_ms, from_rfc3339, to_ms, to_rfc3339

type _Convert = Callable[[Any], Any]
type _Default = Callable[[], Any]


class JsonRecord:
    """Base of frozen dataclasses that are stored as JSON."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        document: dict[str, Any] = _codec_of(type(self)).encode(self)
        return document

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read the JSON form, of this version or another.

        Raises:
            ValueError: A member without a default is missing, or is no such enum or instant.
        """
        record: Self = _codec_of(cls).decode(data)
        return record


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Stands in an `Annotated` type: how a field is stored where its type alone does not say.

    Attributes:
        name: Of the member; None means the field's name.
        encode: To JSON; None means by the type.
        decode: From JSON; None means by the type.
        is_stored: False leaves the field out; its default takes its place.
        omits_none: True leaves the member out while it is None: for fields that older code must not meet.
    """

    name: str | None = None
    encode: _Convert | None = None
    decode: _Convert | None = None
    is_stored: bool = True
    omits_none: bool = False


type MsInstant = Annotated[datetime, Form(encode=to_ms, decode=from_ms)]
"""An instant that is stored as whole milliseconds since 1970, the short form of entity states."""


@dataclass(frozen=True, slots=True)
class _Member:
    """How one field is stored; `encode` and `decode` are None when the value is its own JSON form."""

    field: Field[Any]
    name: str
    encode: _Convert | None
    decode: _Convert | None
    takes_none: bool
    omits_none: bool

    @property
    def default(self) -> _Default | None:
        """Makes the value of a missing member; None means that it must not be missing."""
        if self.field.default_factory is not MISSING:
            return self.field.default_factory
        value = self.field.default
        return None if value is MISSING else lambda: value


@dataclass(frozen=True, slots=True)
class _Codec:
    """What writes and reads one class."""

    encode: _Convert
    decode: _Convert


_CODECS: Final[dict[type[Any], _Codec]] = {}


def _codec_of(cls: type[Any]) -> _Codec:
    codec = _CODECS.get(cls)
    if codec is None:
        # Two threads may both come here; they make equal codecs.
        codec = _CODECS[cls] = _compiled(cls, tuple(_members(cls)))
    return codec


def _compiled(cls: type[Any], members: tuple[_Member, ...]) -> _Codec:
    """Generate the two functions that one would write by hand, as `dataclasses` does with `__init__`.

    A turn encodes and decodes dozens of objects: loops over members at run time made it twice as slow.
    """
    names: dict[str, Any] = {"cls": cls}
    for index, member in enumerate(members):
        names |= {f"encode{index}": member.encode, f"decode{index}": member.decode}
        names[f"default{index}"] = member.default
    encoded = [_encoding(index, member) for index, member in enumerate(members)]
    decoded = [f"{member.field.name}={_decoding(index, member)}" for index, member in enumerate(members)]
    source = f"""
def encode(value):
    return {{{", ".join(encoded)}}}

def decode(data):
    try:
        return cls({", ".join(decoded)})
    except KeyError as error:
        raise ValueError(f"this is no stored {cls.__name__}: it lacks {{error}}") from None
"""
    exec(source, names)  # noqa: S102 - made of the names of our own fields
    return _Codec(names["encode"], names["decode"])


def _encoding(index: int, member: _Member) -> str:
    """Return the item of the object that holds one member."""
    value = f"value.{member.field.name}"
    converted = value if member.encode is None else f"encode{index}({value})"
    if member.omits_none:
        return f"**({{}} if {value} is None else {{{member.name!r}: {converted}}})"
    if member.takes_none and member.encode is not None:
        return f"{member.name!r}: None if {value} is None else {converted}"
    return f"{member.name!r}: {converted}"


def _decoding(index: int, member: _Member) -> str:
    """Return the expression that reads one member; null stands for absence where the field takes no None."""
    stored, default = f"data[{member.name!r}]", f"default{index}()"
    if member.decode is None:
        read = stored
    elif member.takes_none:
        read = f"None if (part := {stored}) is None else decode{index}(part)"
    elif member.default is None:
        read = f"decode{index}({stored})"
    else:
        read = f"{default} if (part := {stored}) is None else decode{index}(part)"
    return read if member.default is None else f"({read}) if {member.name!r} in data else {default}"


def _members(cls: type[Any]) -> Iterator[_Member]:
    hints = get_type_hints(cls, include_extras=True)
    for each in fields(cls):
        hint, form = _form_of(hints[each.name])
        if not form.is_stored:
            _require_default(cls, each)
            continue
        inner, takes_none = _without_none(hint)
        encode, decode = _converters(inner)
        yield _Member(
            field=each,
            name=form.name or each.name,
            encode=form.encode or encode,
            decode=form.decode or decode,
            takes_none=takes_none,
            omits_none=form.omits_none,
        )


def _require_default(cls: type[Any], each: Field[Any]) -> None:
    if each.default is MISSING and each.default_factory is MISSING:
        raise TypeError(f"{cls.__name__}.{each.name} is not stored and has no default")


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


def _converters(hint: Any) -> tuple[_Convert | None, _Convert | None]:
    """Return how a value of a type is encoded and decoded; None for one that is its own JSON form."""
    hint, form = _form_of(hint)
    if form.encode is not None or hint is datetime:
        return form.encode or to_rfc3339, form.decode or from_rfc3339
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple:
        return _tuple_converters(*_converters(arguments[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping_converters(*_converters(arguments[1]))
    return _class_converters(hint) if isinstance(hint, type) else (None, None)


def _class_converters(cls: type[Any]) -> tuple[_Convert | None, _Convert | None]:
    if issubclass(cls, Enum):
        # The instance's own attribute: `value` is a property, three times as slow.
        return attrgetter("_value_"), cls
    if getattr(cls, "to_json", None) is JsonRecord.to_json:
        codec = _codec_of(cls)
        return codec.encode, codec.decode
    return getattr(cls, "to_json", None), getattr(cls, "from_json", None)


def _tuple_converters(encode: _Convert | None, decode: _Convert | None) -> tuple[_Convert, _Convert]:
    return (
        list if encode is None else lambda items: [encode(item) for item in items],
        tuple if decode is None else lambda items: tuple([decode(item) for item in items]),
    )


def _mapping_converters(encode: _Convert | None, decode: _Convert | None) -> tuple[_Convert, _Convert | None]:
    return (
        dict if encode is None else lambda items: {name: encode(item) for name, item in items.items()},
        None if decode is None else lambda items: {name: decode(item) for name, item in items.items()},
    )
