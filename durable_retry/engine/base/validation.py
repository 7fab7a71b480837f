"""Checking documents of callers with pydantic: every problem with its JSON pointer, in words for a person."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError
from pydantic.annotated_handlers import GetJsonSchemaHandler
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema

from durable_retry.engine.base.json_record import JsonRecord


@dataclass(frozen=True, slots=True)
class Problem(JsonRecord):
    """One problem and its place.

    Attributes:
        pointer: JSON pointer (RFC 6901) into the document, e.g. `/retry/max_attempts`; "" is the whole
            document.
        detail: What is wrong and what would be right, as a sentence for a person.
    """

    pointer: str
    detail: str


class InvalidInputError(ValueError):
    """A document is invalid; `problems` lists everything that is wrong with it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{p.pointer or '/'}: {p.detail}" for p in self.problems))


def pointer_of(*parts: str | int) -> str:
    """Join the parts of a path into a JSON pointer, escaping `~` and `/` (RFC 6901 section 3)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


_KEY_MARK: Final = "[key]"
"""Where pydantic says that a mapping's name, not its value, is wrong."""

_WORDS: Final[Mapping[str, str]] = {
    "missing": "is required",
    "model_type": "must be an object",
    "dict_type": "must be an object",
    "list_type": "must be a list",
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
}


class Strict(BaseModel):
    """Base of the models of documents: no unknown keys, no conversions, immutable."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    def written(self) -> dict[str, Any]:
        """Return the keys that the document holds, with their values; defaults are left out."""
        return self.model_dump(exclude_unset=True)


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
    """Marks text that must match a pattern as a whole, in validation and in the JSON schema.

    Attributes:
        pattern: A regular expression that Python and ECMA 262 (JSON Schema) read alike.
        words: The problem's detail for text that does not match.
    """

    pattern: str
    words: str

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


def validated[M: BaseModel](model: type[M], document: Any) -> M:
    """Return the model of a document.

    Raises:
        InvalidInputError: With every problem.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise InvalidInputError(problems_of(error, model)) from None


def problems_of(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """Return the problems of pydantic's errors: pointers for places, and a guess for each unknown key."""
    return [_problem(details, model) for details in error.errors(include_url=False, include_input=False)]


def did_you_mean(name: str, known: list[str]) -> str:
    """Return `; did you mean "retry"?` for the nearest known name, or "" when none is near."""
    near = get_close_matches(name, known, n=1)
    return f'; did you mean "{near[0]}"?' if near else ""


def _problem(details: ErrorDetails, model: type[BaseModel]) -> Problem:
    place = tuple(part for part in details["loc"] if part != _KEY_MARK)
    if details["type"] == "extra_forbidden":
        guess = did_you_mean(str(place[-1]), _names_at(model, place[:-1]))
        return Problem(pointer_of(*place), f"is not a known key{guess}")
    words = _WORDS.get(details["type"], details["msg"].replace("Input should be", "must be"))
    return Problem(pointer_of(*place), words)


def _names_at(model: type[BaseModel], place: tuple[str | int, ...]) -> list[str]:
    """List the keys that a model takes at a place inside it."""
    for part in place:
        inner = None if isinstance(part, int) else _model_in(_field_type(model, part))
        model = model if inner is None else inner
    return [field.alias or name for name, field in model.model_fields.items()]


def _field_type(model: type[BaseModel], name: str) -> Any:
    fields = model.model_fields.items()
    return next((field.annotation for own, field in fields if name in {own, field.alias}), None)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Find the model inside `Model | None`, `list[Model]` and the like."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_model_in(inner) for inner in get_args(annotation))
    return next((inner for inner in found if inner is not None), None)
