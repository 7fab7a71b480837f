"""The signature of an operation's function: its input as JSON, and what its result is read back as.

    signature = signature_of(charge)                        # def charge(order: str, amount: int) -> Receipt
    signature.input_of(("o-1",), {"amount": 5})             # {"order": "o-1", "amount": 5}
    bound = signature.bound({"order": "o-1", "amount": 5}, call)
    charge(*bound.args, **bound.kwargs)

A function whose only parameter, beside the `Call`, is one model or dataclass takes that model's object as its
input. Any other takes an object with a member for each parameter.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import lru_cache, reduce
from operator import or_
from types import UnionType
from typing import Any, Final, NotRequired, TypedDict, Union, get_args, get_origin, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    PydanticSchemaGenerationError,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import to_jsonable_python

from durable_retry.base.documents import json_problems
from durable_retry.base.foreign import json_form, look, name_of, text_of
from durable_retry.base.validation import InvalidInputError, Problem, problems_of
from durable_retry.features.handlers.values import Call, Outcome

# Functions whose signature a process remembers; each costs pydantic about a millisecond.
_MOST_CACHED: Final = 1_024

_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class SignatureError(ValueError):
    """A function that cannot be an operation or a step; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What the function of an operation takes and returns.

    Attributes:
        call_parameter: The parameter that takes the `Call`; None when none does.
        model_parameter: The parameter that takes the whole input; None when each takes a member.
        input_type: The model, or an object with a member for each parameter.
    """

    python: inspect.Signature
    call_parameter: str | None
    model_parameter: str | None
    input_type: Any
    input: TypeAdapter[Any]
    result: TypeAdapter[Any]

    def check_input(self, document: Any) -> Any:
        """Return an input as the function's types.

        Raises:
            InvalidInputError: It does not fit the function; pointers begin with `/input`.
        """
        # As JSON and strictly: 5.0, "5" and true are no int, and "2026-01-02" is a date.
        return _read(
            "/input", self.input_type, lambda: self.input.validate_json(json.dumps(document), strict=True)
        )

    def bound(self, document: Any, call: Call) -> inspect.BoundArguments:
        """Return the arguments for an input.

        Raises:
            InvalidInputError: It does not fit the function.
        """
        value = self.check_input(document)
        bound = self.python.bind_partial()
        bound.arguments |= value if self.model_parameter is None else {self.model_parameter: value}
        return with_call(bound, self.call_parameter, call)

    def input_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return the input, as JSON, that stands for the arguments of a call.

        Raises:
            InvalidInputError: They are not those of the function, or not of its types.
        """
        names = [name for name in self.python.parameters if name != self.call_parameter]
        arguments: Any = dict(zip(names, args, strict=False))
        twice = [name for name in arguments if name in kwargs]
        if twice or len(args) > len(names):
            detail = f"{twice[0]!r} is given twice" if twice else f"the function takes {len(names)} arguments"
            raise InvalidInputError([Problem("/input", detail)])
        arguments |= kwargs
        if self.model_parameter is not None and arguments.keys() == {self.model_parameter}:
            arguments = arguments[self.model_parameter]
        value = self.check_input(_read("/input", self.input_type, lambda: to_jsonable_python(arguments)))
        document = _read(
            "/input", self.input_type, lambda: self.input.dump_python(value, mode="json", by_alias=True)
        )
        if problems := json_problems(document):
            raise InvalidInputError(problem.below("/input") for problem in problems)
        return document


def with_call(
    bound: inspect.BoundArguments, call_parameter: str | None, call: Call
) -> inspect.BoundArguments:
    """Return arguments with the `Call` where the function asks for it, and with its defaults."""
    if call_parameter is not None:
        bound.arguments[call_parameter] = call
    bound.apply_defaults()
    return bound


def stored_result(adapter: TypeAdapter[Any], value: Any, pointer: str, most_bytes: int) -> tuple[Any, str]:
    """Return a function's result as plain JSON, and as the text of that.

    Raises:
        InvalidInputError: It is too large, it is not what the function is annotated to return, or it changes
            in JSON and its annotation does not say how to read it back.
    """
    document, changes = json_form(value, pointer)
    text = json.dumps(document)
    if len(text) > most_bytes:
        detail = f"has {len(text)} bytes of JSON; at most {most_bytes} are stored"
        raise InvalidInputError([Problem(pointer, detail)])
    restored = _read(pointer, Any, lambda: read_result(adapter, text))
    if changes and not look(lambda: bool(restored == value), otherwise=False):
        raise InvalidInputError(changes)
    return document, text


def read_result(adapter: TypeAdapter[Any], text: str) -> Any:
    """Return a stored result as what its function is annotated to return.

    Raises:
        pydantic.ValidationError: It is something else.
    """
    # A model is stored under the names of its fields, whatever their aliases.
    return adapter.validate_json(text, by_alias=True, by_name=True)


def _read[T](place: str, shape: Any, read: Callable[[], T]) -> T:
    """Return what a function of the app's own types returns, whatever their validators raise.

    Raises:
        InvalidInputError: Each mistake below a place.
    """
    try:
        return read()
    except ValidationError as error:
        problems = [problem.below(place) for problem in problems_of(error, shape)]
    except BaseException as error:  # noqa: BLE001 - a validator is code of the app, and raises anything
        problems = [Problem(place, f"cannot be read: {name_of(error)}: {text_of(error)}")]
    raise InvalidInputError(problems)


@lru_cache(_MOST_CACHED)
def signature_of(function: Callable[..., Any]) -> Signature:
    """Return what the function of an operation takes and returns."""
    python, call_parameter = parameters_of(function)
    inputs = {name: declared for name, declared in python.parameters.items() if name != call_parameter}
    for parameter in inputs.values():
        if (problem := _parameter_problem(parameter)) is not None:
            raise SignatureError(problem)
    model = _only_model(inputs)
    shape = _type_of_arguments(inputs) if model is None else inputs[model].annotation
    try:
        adapter = _adapter_for(shape, "its input")
    except SignatureError:
        for name, annotation in get_type_hints(shape).items() if model is None else ():
            _adapter_for(annotation, f"its parameter {name}")
        raise
    return Signature(python, call_parameter, model, shape, adapter, result_of(function))


@lru_cache(_MOST_CACHED)
def parameters_of(function: Callable[..., Any]) -> tuple[inspect.Signature, str | None]:
    """Return the parameters of a function, and the name of the one that takes the `Call`."""
    try:
        python = inspect.signature(function, eval_str=True)
    except (NameError, TypeError, ValueError, AttributeError) as error:
        raise SignatureError(f"its annotations cannot be read: {error}") from error
    names = (name for name, parameter in python.parameters.items() if _takes_call(parameter))
    return python, next(names, None)


def lookup_signature(function: Callable[..., Any], of: Signature) -> tuple[inspect.Signature, str | None]:
    """Return the parameters of a lookup, and the name of the one that takes the `Call`.

    Raises:
        SignatureError: The operation's function has no such parameter.
    """
    python, call_parameter = parameters_of(function)
    known = {name: value for name, value in of.python.parameters.items() if name != of.call_parameter}
    for name, parameter in python.parameters.items():
        if name == call_parameter:
            continue
        if name not in known:
            names = ", ".join(known) or "none"
            raise SignatureError(f"its parameter {name} is none that the operation takes: {names}")
        if parameter.annotation not in (parameter.empty, known[name].annotation):
            raise SignatureError(f"its parameter {name} is of another type than that of the operation")
    return python, call_parameter


def _parameter_problem(parameter: inspect.Parameter) -> str | None:
    if parameter.name == "self" and parameter.annotation is parameter.empty:
        return "it is a method: write durable_retry.wrap(SHOP.book, dependency=...) in place of the decorator"
    if parameter.kind in _VARIADIC:
        return f"its parameter {parameter} takes anything: name what it takes"
    return None


def _takes_call(parameter: inspect.Parameter) -> bool:
    if parameter.annotation is parameter.empty:
        return parameter.name == "call"
    return parameter.annotation is Call


def _only_model(inputs: Mapping[str, inspect.Parameter]) -> str | None:
    if len(inputs) != 1:
        return None
    ((name, parameter),) = inputs.items()
    shape = parameter.annotation
    is_model = isinstance(shape, type) and (issubclass(shape, BaseModel) or is_dataclass(shape))
    return name if is_model else None


def _type_of_arguments(inputs: Mapping[str, inspect.Parameter]) -> Any:
    members: dict[str, Any] = {}
    for name, parameter in inputs.items():
        annotation = Any if parameter.annotation is parameter.empty else parameter.annotation
        members[name] = annotation if parameter.default is parameter.empty else NotRequired[annotation]
    make: Any = TypedDict  # mypy knows only those that are written out
    shape = make("Arguments", members)
    shape.__pydantic_config__ = ConfigDict(extra="forbid")
    return shape


@lru_cache(_MOST_CACHED)
def result_of(function: Callable[..., Any]) -> TypeAdapter[Any]:
    """Return the adapter that reads a stored result of a function."""
    python, _ = parameters_of(function)
    annotation = python.return_annotation
    return _adapter_for(Any if annotation is python.empty else _value_type(annotation), "its result")


def _value_type(annotation: Any) -> Any:
    """Return the type of the value inside `Outcome[T]`, and `Receipt` for `Receipt | Outcome[Receipt]`."""
    if annotation is Outcome:
        return Any
    if get_origin(annotation) is Outcome:
        return get_args(annotation)[0]
    if get_origin(annotation) in (Union, UnionType):
        return reduce(or_, map(_value_type, get_args(annotation)))
    return annotation


def _adapter_for(shape: Any, part: str) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(shape)
    except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
        # Pydantic's advice after its first sentence is for authors of models.
        reason = str(error).splitlines()[0].partition(". ")[0]
        detail = f"{part} has no JSON form ({reason}): use JSON types, dataclasses or pydantic models"
        raise SignatureError(detail) from error
