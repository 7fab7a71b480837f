"""Checking what strangers sent: JSON texts, JSON pointers (RFC 6901), and documents against pydantic models.

Every problem has its JSON pointer and a sentence for a person. A path that a caller sets must stay below the
configured base URL. A header must not concern the connection, carry credentials or replace what the app
writes itself.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from itertools import islice
from json import JSONDecoder
from typing import Annotated, Any, ClassVar, Final, Self, get_args, get_type_hints
from urllib.parse import unquote

from jsonpointer import EndOfList, JsonPointer, JsonPointerException
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    create_model,
)
from pydantic.annotated_handlers import GetJsonSchemaHandler
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema

from durable_retry.base.json_forms import JsonShape, from_rfc3339
from durable_retry.base.text import cut_text
from durable_retry.plugins import why_absent


@dataclass(frozen=True, slots=True)
class Problem(JsonShape):
    """One problem and its place.

    Attributes:
        pointer: JSON pointer (RFC 6901) into the document, e.g. `/retry/max_attempts`; "" is the whole
            document.
        detail: What is wrong and what would be right, as a sentence for a person.
    """

    pointer: str
    detail: str

    def below(self, pointer: str) -> Self:
        """Return the problem of a document that stands at a place of another one."""
        return replace(self, pointer=pointer + self.pointer)


@dataclass(frozen=True, slots=True)
class MoreProblems(Problem):
    """Stands for problems that are not listed."""

    count: int = 0


MOST_LISTED: Final = 100
"""Problems of one document that are listed; more would not be read."""

_MOST_CHARS: Final = 1_000
"""A pointer is made of names that a stranger chooses, and a detail may cite them."""


def with_more(problems: Sequence[Problem], count: int) -> list[Problem]:
    """Return problems, with one that stands for `count` others, if there are any."""
    words = "1 more mistake is" if count == 1 else f"{count} more mistakes are"
    return [*problems, MoreProblems("", f"{words} not listed", count)] if count else [*problems]


def count_of(problems: Iterable[Problem]) -> int:
    """Return how many problems a list stands for."""
    return sum(problem.count if isinstance(problem, MoreProblems) else 1 for problem in problems)


def _listed(problems: Iterable[Problem], most: int) -> list[Problem]:
    rest = iter(problems)
    first = [_shortened(problem) for problem in islice(rest, most)]
    left_out = count_of(rest)
    return with_more(first[:-1], count_of(first[-1:]) + left_out) if left_out else first


def _shortened(problem: Problem) -> Problem:
    if max(len(problem.pointer), len(problem.detail)) <= _MOST_CHARS:
        return problem
    pointer, detail = cut_text(problem.pointer, _MOST_CHARS), cut_text(problem.detail, _MOST_CHARS)
    return replace(problem, pointer=pointer, detail=detail)


class InvalidInputError(ValueError):
    """A document is invalid; `problems` lists what is wrong with it."""

    most_listed: ClassVar = MOST_LISTED

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(_listed(problems, self.most_listed))
        super().__init__("; ".join(f"{p.pointer or '/'}: {p.detail}" for p in self.problems))


UNRESOLVED: Final = "@Microsoft.KeyVault("
"""What an app setting begins with when the platform could not replace its reference to Key Vault."""

UNRESOLVED_DETAIL: Final = (
    "is a Key Vault reference that the platform has not resolved: check the secret's address, and give the "
    "app's identity the role Key Vault Secrets User"
)


def pointer_of(*parts: str | int) -> str:
    """Join the parts of a path into a JSON pointer, escaping `~` and `/` (RFC 6901 section 3)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def pointer_parts(pointer: str) -> list[str]:
    """Split a JSON pointer into the parts that `pointer_of` joined."""
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


TAGS: Final = ("[text]", "[table]")
"""Tags of a union whose members are told apart by whether the document has a text or a table."""

_KEY_MARK: Final = "[key]"
"""Where pydantic says that a mapping's name, not its value, is wrong."""

_WORDS: Final[Mapping[str, str]] = {
    "missing": "is required",
    "model_type": "must be an object",
    "dict_type": "must be an object",
    "dataclass_type": "must be an object",
    "list_type": "must be a list",
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
}


class Strict(BaseModel):
    """Base of the models of documents: no unknown keys, no conversions, immutable."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, defer_build=True)

    def written(self) -> dict[str, Any]:
        """Return the keys that the document holds, with their values; defaults are left out."""
        return self.model_dump(exclude_unset=True)


def with_example(**members: Any) -> ConfigDict:
    """Return the `model_config` of a class with an example for the OpenAPI document."""
    return ConfigDict(json_schema_extra={"examples": [members]})


def table_of(cls: type[Any]) -> type[Strict]:
    """Return the model of a document that has the fields of a dataclass, with their defaults and ranges."""
    hints = get_type_hints(cls, include_extras=True)
    keys: dict[str, Any] = {
        field.name: (_table_in(hints[field.name]), field.default) for field in fields(cls)
    }
    return create_model(cls.__name__, __base__=Strict, __doc__=cls.__doc__, **keys)


def _table_in(hint: Any) -> Any:
    """Return the type of a member of a table, with a table in place of a dataclass that may be absent."""
    inner = [option for option in get_args(hint) if isinstance(option, type) and is_dataclass(option)]
    return table_of(inner[0]) | None if inner else hint


def refuse(detail: str) -> PydanticCustomError:
    """Return the error that a validator raises, with a sentence of our own."""
    return PydanticCustomError("refused", "{detail}", {"detail": detail})


def checked(problem_of: Callable[[str], str | None]) -> AfterValidator:
    """Return a validator of text from a function that returns what is wrong with it, or None."""

    def check(value: str) -> str:
        if (problem := problem_of(value)) is not None:
            raise refuse(problem)
        return value

    return AfterValidator(check)


@dataclass(frozen=True, slots=True)
class Matching:
    """Marks text that must match a pattern as a whole, in validation and in the JSON schema."""

    pattern: str  # a regular expression that Python and ECMA 262 (JSON Schema) read alike
    words: str  # the problem's detail for text that does not match

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        whole = re.compile(self.pattern)

        def check(value: str) -> str:
            if whole.fullmatch(value) is None:
                raise refuse(self.words)
            return value

        return core_schema.no_info_after_validator_function(check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return handler(schema) | {"pattern": f"^(?:{self.pattern})$"}


_MOST_KEYS: Final = 1_000


def _surplus_keys(document: Any) -> str | None:
    """Return that an object has far more keys than any model: to name all would not help."""
    if not isinstance(document, dict) or len(document) <= _MOST_KEYS:
        return None
    return f"has {len(document)} keys; it takes few, see the API's description"


def refuse_surplus_keys(document: Any) -> Any:
    """Validate, before its keys, a part of a document that may be large."""
    if (problem := _surplus_keys(document)) is not None:
        raise refuse(problem)
    return document


def validated[M: BaseModel](model: type[M], document: Any) -> M:
    """Return the model of a document; InvalidInputError with every problem."""
    if (problem := _surplus_keys(document)) is not None:
        raise InvalidInputError([Problem("", problem)])
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise InvalidInputError(problems_of(error, model)) from None


def problems_of(error: ValidationError, shape: Any) -> list[Problem]:
    """Return the problems of pydantic's errors: pointers for places, and a guess for each unknown key."""
    listed = [_problem_of_error(details, shape) for details in islice(_errors_in(error), MOST_LISTED)]
    return with_more(listed, error.error_count() - len(listed))


def _errors_in(error: ValidationError) -> Iterator[ErrorDetails]:
    # As one text they take a quarter of the memory, and only the first of them become objects.
    text = error.json(include_url=False, include_input=False, include_context=False)
    decoder, end = JSONDecoder(), 0
    for _ in range(error.error_count()):
        details, end = decoder.raw_decode(text, end + 1)  # behind a bracket or a comma
        yield details


_MOST_GUESSED_CHARS: Final = 64
_LEAST_PART_CHARS: Final = 3


def did_you_mean(name: str, names: list[str]) -> str:
    """Return `; did you mean "retry"?` for the nearest known name, or "" when none is near.

    Where none is spelt alike, it is the only one that is a part of the name, or that has it as a part.
    """
    # The cost of a comparison grows with the square of the lengths; a longer text is no misspelt key.
    if len(name) > _MOST_GUESSED_CHARS:
        return ""
    near = get_close_matches(name, names, n=1) or [
        each
        for each in names
        if min(len(name), len(each)) >= _LEAST_PART_CHARS and (name in each or each in name)
    ]
    return f'; did you mean "{near[0]}"?' if len(near) == 1 else ""


def _problem_of_error(details: ErrorDetails, shape: Any) -> Problem:
    place = tuple(part for part in details["loc"] if part not in {_KEY_MARK, *TAGS})
    if details["type"] == "extra_forbidden":
        name, known = str(place[-1]), _names_at(shape, place[:-1])
        absent = why_absent(name) or why_absent(".".join(map(str, place[-2:])))
        why = f", it {absent}" if absent else did_you_mean(name, known)
        return Problem(pointer_of(*place), f"is not a known key{why}")
    said = re.sub(r"^\w+ should ", "must ", details["msg"]).partition(" after validation")[0]
    words = _WORDS.get(details["type"], said)
    return Problem(pointer_of(*place), words)


def _names_at(shape: Any, place: tuple[str | int, ...]) -> list[str]:
    """List the keys that a shape takes at a place inside it."""
    for part in place:
        inner = None if isinstance(part, int) else _shape_in(_members_of(shape).get(part))
        shape = shape if inner is None else inner
    return list(_members_of(shape))


def _members_of(shape: Any) -> dict[str, Any]:
    """Return the annotations of a model's keys, or of a typed dictionary's or a dataclass' members."""
    fields = getattr(shape, "model_fields", None)
    if fields is None:
        return dict(getattr(shape, "__annotations__", {}))
    return {field.alias or name: field.annotation for name, field in fields.items()}


def _shape_in(annotation: Any) -> Any:
    """Find the shape inside `Model | None`, `list[Model]` and the like; None when there is none."""
    if isinstance(annotation, type) and _members_of(annotation):
        return annotation
    shapes = (_shape_in(inner) for inner in get_args(annotation))
    return next((inner for inner in shapes if inner is not None), None)


def pointed_at(document: Any, pointer: str) -> list[Any]:
    """Return what a JSON pointer points at, as a list of one; an empty list when there is nothing there."""
    try:
        value = JsonPointer(pointer).resolve(document)
    except JsonPointerException:
        return []
    # `-` names the place behind a list's last item, where nothing is.
    return [] if isinstance(value, EndOfList) else [value]


def pointer_problem(pointer: str) -> str | None:
    """Return what is wrong with a JSON pointer; None when nothing is."""
    try:
        JsonPointer(pointer)
    except JsonPointerException:
        return "is not a JSON pointer: it begins with /, and ~ stands only in ~0 or ~1 (RFC 6901)"
    return None


def _instant_problem(text: str) -> str | None:
    try:
        from_rfc3339(text)
    except ValueError:
        return "must be an RFC 3339 instant such as 2026-11-21T09:30:00Z"
    return None


MAX_SECONDS: Final = 31_536_000.0

type InstantText = Annotated[str, checked(_instant_problem), Field(json_schema_extra={"format": "date-time"})]

type Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS)]
type PositiveSeconds = Annotated[float, Field(gt=0, le=MAX_SECONDS)]
type Ratio = Annotated[float, Field(gt=0, le=1)]
type RelativePath = Annotated[str, checked(path_problem)]
type HeaderName = Annotated[str, checked(header_name_problem)]
type HeaderValue = Annotated[str, checked(header_value_problem)]
type ResourceName = Annotated[
    str,
    Matching(
        r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}",
        "must be 1 to 128 letters, digits, _, . or -, and not begin with . or -",
    ),
]
type Key = Annotated[str, Matching(r"[\x21-\x7e]{1,255}", "must be 1 to 255 visible ASCII characters")]
type Label = Annotated[
    str,
    # Without spaces at the ends: a correlation id is sent as a header, and HTTP strips or refuses them there.
    Matching(
        r"[^\x00-\x20\x7f]([^\x00-\x1f\x7f]{0,253}[^\x00-\x20\x7f])?",
        "must be 1 to 255 characters, with no control character and no space at an end",
    ),
]

MAX_PATH_CHARS: Final = 2_048
MAX_HEADER_VALUE_CHARS: Final = 4_096

_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")

_RESERVED: Final = {
    **dict.fromkeys(
        ("authorization", "proxy-authorization", "proxy-authenticate", "cookie"),
        "carries credentials, which come from dependencies.toml only",
    ),
    "accept-encoding": "says how an answer may be compressed, which dependencies.toml decides",
    **dict.fromkeys(
        ("x-http-method-override", "x-http-method", "x-method-override"),
        "is taken by some servers for the method: set `method`",
    ),
    **dict.fromkeys(("x-original-url", "x-rewrite-url"), "is taken by some servers for the path: set `path`"),
}
"""What dependencies.toml may set, and callers may not."""

_REFUSED: Final = {
    **dict.fromkeys(
        (
            *("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"),
            *("upgrade", "http2-settings"),
        ),
        "belongs to one connection only (RFC 9110 section 7.6.1)",
    ),
    **dict.fromkeys(("host", "content-length", "expect"), "is written by the app itself"),
}


def path_problem(path: str) -> str | None:
    """Return what is wrong with a path relative to a base URL; None when nothing is.

    The path is checked as written, and again after each round of percent-decoding until nothing changes: a
    server behind the first one may decode it once more.
    """
    if len(path) > MAX_PATH_CHARS:
        return f"is longer than {MAX_PATH_CHARS} characters"
    for form in _decodings_of_path(path):
        if (problem := _form_problem(form)) is not None:
            return problem
    if path != path.strip():
        return "must not begin or end with white space"
    if "?" in path or "#" in path:
        return "holds ? or #: put the query into `query`, and leave fragments out"
    return None


def _decodings_of_path(path: str) -> list[str]:
    """List a path and its repeated decodings; each is shorter than the one before, so the list ends."""
    forms = [path]
    while (decoded := unquote(forms[-1])) != forms[-1]:
        forms.append(decoded)
    return forms


def _form_problem(path: str) -> str | None:
    if _CONTROL.search(path):
        return "holds control characters"
    if "\\" in path:
        return "holds a backslash, which some servers read as /"
    if path.startswith("//") or _SCHEME.match(path):
        return "must be relative to the dependency's base_url: no scheme, no host"
    # Some servers drop what follows a semicolon, so `..;v=1` climbs like `..`.
    if any(segment.split(";")[0] in {".", ".."} for segment in re.split(r"[/?#]", path)):
        return "must not hold . or .. segments, also not percent-encoded"
    return None


def header_id(name: str) -> str:
    """Return what tells a header from others: to CGI and WSGI case is no difference, nor `_` for `-`."""
    return name.lower().replace("_", "-")


def header_name_problem(name: str) -> str | None:
    """Return why a caller may not set a header of this name; None when they may."""
    if not _TOKEN.fullmatch(name):
        return "is not a header name (RFC 9110 section 5.1), or is longer than 128 characters"
    reason = _REFUSED.get(header_id(name)) or _RESERVED.get(header_id(name))
    return None if reason is None else f"may not be set: it {reason}"


def answer_header_problem(name: str) -> str | None:
    """Return why no answer has a header of this name; None when one may."""
    return None if _TOKEN.fullmatch(name) else "is not a header name (RFC 9110 section 5.1)"


def config_header_problem(name: str) -> str | None:
    """Like `header_name_problem`, for dependencies.toml, which may set more."""
    return None if header_id(name) in _RESERVED else header_name_problem(name)


def header_value_problem(value: str) -> str | None:
    """Return what is wrong with a header's value; None when nothing is."""
    if len(value) > MAX_HEADER_VALUE_CHARS:
        return f"is longer than {MAX_HEADER_VALUE_CHARS} characters"
    if not value.isascii() or _CONTROL.search(value.replace("\t", " ")):
        return "may hold visible ASCII characters, spaces and tabs only"
    if value != value.strip():
        return "must not begin or end with white space"
    return None
