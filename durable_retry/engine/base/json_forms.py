"""Stored forms: instants, frozen dataclasses as JSON, and the trace context that travels with a message.

Instants are RFC 3339 in UTC with `Z`, milliseconds since 1970, or, in keys of rows, digits that sort by time.
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

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from datetime import UTC, datetime, timedelta
from enum import Enum
from operator import attrgetter
from types import NoneType
from typing import Annotated, Any, Final, Self, TypeAliasType, get_args, get_origin, get_type_hints

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_MICROSECOND: Final = timedelta(microseconds=1)
_OFFSET_CHARS: Final = len("+00:00")


def to_rfc3339(instant: datetime) -> str:
    """Write an aware instant as RFC 3339 in UTC, e.g. `2026-11-21T09:30:00.250000Z`.

    Raises:
        ValueError: if the instant is naive, since its zone would be a guess.
    """
    if instant.tzinfo is None:
        raise ValueError("an instant needs a time zone")
    in_utc = instant if instant.tzinfo is UTC else instant.astimezone(UTC)
    return f"{in_utc.isoformat()[:-_OFFSET_CHARS]}Z"


def from_rfc3339(text: str) -> datetime:
    """Read an RFC 3339 instant; the answer is in UTC.

    Raises:
        ValueError: if the text is not a date and time, or has no offset.
    """
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError(f"{text!r} has no offset from UTC")
    return instant if instant.tzinfo is UTC else instant.astimezone(UTC)


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


def optional_to_ms(instant: datetime | None) -> int | None:
    """As `to_ms`; None stays None."""
    return None if instant is None else to_ms(instant)


def optional_from_ms(milliseconds: int | None) -> datetime | None:
    """As `from_ms`; None stays None."""
    return None if milliseconds is None else from_ms(milliseconds)


type _Convert = Callable[[Any], Any]
type _Default = Callable[[], Any]


DIGITS: Final = 17
"""Of an instant in a row's key. Rows sort by their keys, in rising order, so a list with the newest first
has falling digits. Keys are stored: `newest_first` and `age` differ by a microsecond; neither can change."""

_END_US: Final = 10**DIGITS
"""Microseconds since 1970 in the year 5138: what is left until then sorts the newest first."""


def microseconds(instant: datetime) -> int:
    """Return whole microseconds since 1970 of an aware instant."""
    return (instant - _EPOCH) // _MICROSECOND


def from_microseconds(number: int) -> datetime:
    """Return the aware UTC instant of microseconds since 1970."""
    return _EPOCH + number * _MICROSECOND


def oldest_first(instant: datetime) -> str:
    """Return 17 digits that sort in the order of the instants."""
    return f"{microseconds(instant):0{DIGITS}d}"


def newest_first(instant: datetime) -> str:
    """Return 17 digits that sort in reverse order of the instants."""
    return f"{_END_US - 1 - microseconds(instant):0{DIGITS}d}"


def age(instant: datetime) -> str:
    """As `newest_first`, for the lists of batches, sagas and bulk actions and of the outbox."""
    return f"{_END_US - microseconds(instant):0{DIGITS}d}"


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
    """How a field is stored, given in an `Annotated` type where the type alone does not say it.

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


TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"

_DIAGNOSTIC_ID: Final = "Diagnostic-Id"

MAX_TRACESTATE_CHARS: Final = 512
"""The length that everyone must pass on; a longer tracestate is dropped, as the recommendation allows."""

_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_TRACESTATE: Final = re.compile(r"[\x20-\x7e]+")


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A position in a trace.

    Attributes:
        traceparent: Version, trace id, span id and flags in the form of the header.
        tracestate: What vendors add to it; "" when they do not.
    """

    traceparent: str
    tracestate: str = ""

    @property
    def trace_id(self) -> str:
        """The id of the trace, 32 hexadecimal digits."""
        return self.traceparent.split("-")[1]

    def to_json(self) -> dict[str, str]:
        """Return the JSON form, which is that of the two headers."""
        state = {TRACESTATE: self.tracestate} if self.tracestate else {}
        return {TRACEPARENT: self.traceparent, **state}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> Self | None:
        """Read what `to_json` returned; None when it is missing or malformed."""
        return None if data is None else cls.read(data.get(TRACEPARENT), data.get(TRACESTATE))

    @classmethod
    def read(cls, traceparent: Any, tracestate: Any = None) -> Self | None:
        """Read the two values of a caller, which may have any form.

        Args:
            traceparent: Of any type and form; of a later version, the part that this version defines.
            tracestate: Dropped when malformed or too long; the traceparent still counts.

        Returns:
            None without a valid `traceparent`.
        """
        found = _TRACEPARENT.match(traceparent.strip()) if isinstance(traceparent, str) else None
        if found is None or not _ends_well(traceparent.strip(), found.end()):
            return None
        return cls(found[0], _usable(tracestate))


def trace_in(properties: Any) -> TraceContext | None:
    """Return the position that the properties of a message carry; None when they carry none.

    Args:
        properties: Of a message broker, of any form. Azure's own clients write `Diagnostic-Id`.
    """
    if not isinstance(properties, Mapping):
        return None
    traceparent = properties.get(TRACEPARENT) or properties.get(_DIAGNOSTIC_ID)
    return TraceContext.read(traceparent, properties.get(TRACESTATE))


def _ends_well(traceparent: str, end: int) -> bool:
    """Only a later version than 00 may continue, after a dash."""
    return len(traceparent) == end or (not traceparent.startswith("00-") and traceparent[end] == "-")


def _usable(tracestate: Any) -> str:
    if not isinstance(tracestate, str) or len(tracestate) > MAX_TRACESTATE_CHARS:
        return ""
    return tracestate if _TRACESTATE.fullmatch(tracestate) else ""
