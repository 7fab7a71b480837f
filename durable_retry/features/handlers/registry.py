"""The operations of the app's own code: functions that `operation` declares, by name.

@durable_retry.operation(dependency="payments")
def charge(order: str, amount: int) -> Receipt: ...
"""

import inspect
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from types import MappingProxyType
from typing import Any, Final, Protocol, Required, TypedDict, Unpack, cast, overload

from pydantic import InstanceOf, TypeAdapter, ValidationError, with_config

from durable_retry.base.names import PriorityName
from durable_retry.base.validation import (
    InvalidInputError,
    PositiveSeconds,
    ResourceName,
    problems_of,
    validated,
)
from durable_retry.features.handlers.signatures import (
    Signature,
    SignatureError,
    lookup_signature,
    read_result,
    result_of,
    signature_of,
)
from durable_retry.features.handlers.values import Call, Outcome
from durable_retry.hub.decorated import user_function
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.operations.request import FollowUp
from durable_retry.rules.retry.policy import RetryOverride, policy_from, policy_problems

_DECLARED: Final = '@durable_retry.operation(dependency="payments")'

type Function = Callable[..., Any]
type _Async[T] = Coroutine[Any, Any, T]


class _DeclareLookup(Protocol):
    @overload
    def __call__[F: Function](self, function: F, /) -> F: ...
    @overload
    def __call__[F: Function](self, *, settle_seconds: float) -> Callable[[F], F]: ...


class OperationFunction[F: Function, **P, R](Protocol):
    """A function that `operation` declared; at run time it is the function itself.

    `F` is its own type, `P` what it takes beside the `Call`, `R` what an operation of it results in.
    """

    @property
    def __call__(self) -> F:
        """It is called as before."""

    def __operation__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Never called: it shows `P` and `R` to a type checker."""

    @property
    def lookup(self) -> _DeclareLookup:
        """Declares a function that is asked whether an attempt happened whose end is unknown.

            @charge.lookup(settle_seconds=10)
            async def find_charge(order: str, call: Call) -> Receipt | None: ...

        It takes what the operation's function takes, or some of it, and a `Call`, whose `attempt` is the one
        in question. What it returns is the result of the operation; None means that it was not found, which
        says nothing until `settle_seconds`, 10 by default, after the end of the attempt. `Rejected` says that
        it happened, and failed for good. Anything else that it raises is no answer.
        """


class _Declare(Protocol):
    """Declares a function; of an async one, or one that returns an `Outcome`, the value is the result."""

    @overload
    def __call__[A, R](  # type: ignore[overload-overlap] # the first that fits is the closest
        self, function: Callable[[A, Call], _Async[Outcome[R]]], /
    ) -> OperationFunction[Callable[[A, Call], _Async[Outcome[R]]], [A], R]: ...
    @overload
    def __call__[A, R](  # type: ignore[overload-overlap]
        self, function: Callable[[A, Call], _Async[R]], /
    ) -> OperationFunction[Callable[[A, Call], _Async[R]], [A], R]: ...
    @overload
    def __call__[A, R](  # type: ignore[overload-overlap]
        self, function: Callable[[A, Call], Outcome[R]], /
    ) -> OperationFunction[Callable[[A, Call], Outcome[R]], [A], R]: ...
    @overload
    def __call__[A, R](
        self, function: Callable[[A, Call], R], /
    ) -> OperationFunction[Callable[[A, Call], R], [A], R]: ...
    @overload
    def __call__[**P, R](
        self, function: Callable[P, _Async[Outcome[R]]], /
    ) -> OperationFunction[Callable[P, _Async[Outcome[R]]], P, R]: ...
    @overload
    def __call__[**P, R](
        self, function: Callable[P, _Async[R]], /
    ) -> OperationFunction[Callable[P, _Async[R]], P, R]: ...
    @overload
    def __call__[**P, R](
        self, function: Callable[P, Outcome[R]], /
    ) -> OperationFunction[Callable[P, Outcome[R]], P, R]: ...
    @overload
    def __call__[**P, R](self, function: Callable[P, R], /) -> OperationFunction[Callable[P, R], P, R]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A declared function.

    Attributes:
        retry: Changes to the dependency's policy; None for none.
        repeatable: Whether to run it again when an execution ended and nobody knows whether it took effect;
            None means: yes, but requests only where the dependency deduplicates.
        timeout_seconds: One attempt of it; None means `attempt_seconds` of the dependency.
        heartbeat_seconds: The longest time between two heartbeats; None when it needs none.
        priority: That of its operations which bring none; None means that of the dependency.
        of_features: Keys of a dependency that features have, which it adds to those of its own.
    """

    name: str
    dependency: str
    function: Function
    retry: RetryOverride | None = None
    repeatable: bool | None = None
    timeout_seconds: float | None = None
    heartbeat_seconds: float | None = None
    priority: PriorityName | None = None
    of_features: Mapping[str, Any] = field(default_factory=dict)

    @property
    def signature(self) -> Signature:
        """What it takes and returns.

        Raises:
            HandlerSetupError: It has a parameter or a result that JSON cannot carry.
        """
        try:
            return signature_of(self.function)
        except SignatureError as error:
            raise HandlerSetupError(self.place, str(error)) from error

    @property
    def lookup(self) -> Function | None:
        """The function that is asked whether an attempt happened; None where none is."""
        lookup: Mapping[str, Function] = self.of_features.get(_LOOKUP, {})
        return lookup.get("function")

    def check_functions(self) -> None:
        """Check what its functions take and return.

        Raises:
            HandlerSetupError: As `signature`; or its lookup takes what it does not.
        """
        signature = self.signature
        if self.lookup is not None:
            try:
                lookup_signature(self.lookup, signature)
            except SignatureError as error:
                raise HandlerSetupError(_place_of(self.lookup, f"{self.name}.lookup"), str(error)) from error

    @property
    def place(self) -> str:
        """Its name, and the file and line where it is to be changed, for a mistake in it."""
        return _place_of(self.function, self.name)

    def check_input(self, document: Any) -> Any:
        """Return an input as the types of the function's parameters; see `Signature.check_input`."""
        return self.signature.check_input(document)

    def read_result(self, value: Any) -> Any:
        """Return a stored result as what the function is annotated to return."""
        return read_result(result_of(self.function), json.dumps(value))

    def limits_at(self, dependency: Dependency) -> Dependency:
        """Return its dependency with the policy and the time limit of the function."""
        retry = (
            dependency.retry if self.retry is None else policy_from(self.retry.written(), dependency.retry)
        )
        timeouts, seconds = dependency.timeouts, self.timeout_seconds
        if seconds is not None:
            connect = min(timeouts.connect_seconds, seconds)
            timeouts = replace(timeouts, attempt_seconds=seconds, connect_seconds=connect)
        priority = self.priority or dependency.priority
        limits = replace(dependency, retry=retry, timeouts=timeouts, priority=priority)
        return limits.with_more(**self.of_features) if self.of_features else limits


class HandlerSetupError(ValueError):
    """A function that cannot be declared: `place` says where, each of `details` what to change."""

    def __init__(self, place: str, *details: str) -> None:
        super().__init__(f"{place}: {'; '.join(details)}")
        self.place, self.details = place, details


class OperationOptions(TypedDict, total=False):
    """The options of `operation`."""

    dependency: Required[str]
    retry: Mapping[str, Any] | None
    repeatable: bool | None
    timeout: PositiveSeconds | None
    heartbeat_seconds: PositiveSeconds | None
    priority: PriorityName | None
    on_failure: Sequence[InstanceOf[FollowUp]]
    fallback: str


@with_config(extra="forbid")
class _Declared(OperationOptions):
    name: Required[ResourceName]


def operation(name: str | None = None, **options: Unpack[OperationOptions]) -> _Declare:
    """Declare a function, sync or async, as an operation, which is started by its name and retried.

        @durable_retry.operation(dependency="payments")
        def charge(order: str, amount: int) -> Receipt: ...

        @durable_retry.operation("ship-order", dependency="warehouse")
        async def ship_order(order: ShipOrder, call: Call) -> Shipment: ...

    The function stays what it is, and can be called as before. Input and result are checked by its
    annotations. A parameter that is annotated `Call` gets the attempt.

    Args:
        name: What operations put into `handler`; None means the name of the function.
        dependency: The one whose policy, circuit and client it uses.
        retry: Changes to the dependency's policy, in the words of a `retry` table.
        repeatable: Whether to run it again when an execution was cut off or its process died, so that nobody
            knows whether it took effect; if not, the operation is a dead letter then. None means: yes, but
            a request that may have taken effect only where the dependency deduplicates.
        timeout: Seconds for one attempt; None means `attempt_seconds` of the dependency.
        heartbeat_seconds: The attempt is cut off when it has not called `call.heartbeat` for so long; None
            means that it need not, and then it must not.
        priority: Who goes first where operations wait: `high`, `normal` or `low`, unless an operation says
            so itself; None means that of the dependency.
        on_failure: Events to send when an operation of it becomes a dead letter, beside the dependency's.
        fallback: Another dependency, whose client it gets while the circuit of the first is open.

    Raises:
        HandlerSetupError: The name is taken, options are wrong, or the function cannot be declared. Before
            `register` nothing is raised here: `register` raises it, together with all other mistakes. After
            `register` the decorator raises a `StartError`.
    """

    def declare(function: Any) -> Any:
        handler, mistake = _declaration(function, None if callable(name) else name, options)
        _note(_defined_at(function), handler, mistake)
        with suppress(AttributeError):  # a built-in function and a method take no attribute
            function.lookup = partial(_declare_lookup, None if handler is None else handler.name)
        return function

    # Without parentheses, the decorator gets the function in place of a name.
    return cast("_Declare", declare(name) if callable(name) else declare)


def _declare_lookup(handler_name: str | None, function: Any = None, /, **options: Any) -> Any:
    """See `OperationFunction.lookup`.

    Args:
        handler_name: None where the handler itself has mistakes, which are reported.
    """

    def declare(function: Any) -> Any:
        if handler_name is None:
            return function
        handler, name = _handlers[handler_name], f"{handler_name}.lookup"
        problem = _function_problem(function, name)
        if problem is None and handler.lookup is not None:
            problem = f"is a second lookup: {_place_of(handler.lookup, name)} is one"
        mistake = None if problem is None else HandlerSetupError(_place_of(function, name), problem)
        if mistake is None:
            own = {_LOOKUP: {**options, "function": function}}
            handler = replace(handler, of_features={**handler.of_features, **own})
        _note(_lookup_at(handler.function), handler, mistake)
        return function

    return declare if function is None else declare(function)


def _note(at: tuple[str, str], handler: Handler | None, mistake: HandlerSetupError | None) -> None:
    """Keep a handler as it is declared now, and what is wrong at a place of it."""
    if _check_declared is not None:
        _check_declared(handler, mistake)
    if handler is not None:
        _handlers[handler.name] = handler
    if mistake is None:
        _mistakes.pop(at, None)
    else:
        _mistakes[at] = mistake


def _declaration(
    function: Any, name: str | None, options: OperationOptions
) -> tuple[Handler | None, HandlerSetupError | None]:
    """Return a function as a handler with the options that are right, and what is wrong with it.

    There is no handler where nothing can be said of its signature or its dependency.
    """
    own_name: str = getattr(user_function(function), "__name__", type(function).__name__)
    operation_name = own_name if name is None else name
    problem = _function_problem(function, operation_name)
    details = [] if problem is None else [problem]
    right, wrong = _options({"name": operation_name, **options})
    details += wrong
    if (earlier := _handlers.get(operation_name)) and _defined_at(earlier.function) != _defined_at(function):
        details.append(f"{earlier.place} has the same name; choose another")
    mistake = HandlerSetupError(_place_of(function, operation_name), *details) if details else None
    if problem is not None or not {"name", "dependency"} <= right.keys():
        return None, mistake
    of_features = {name: right.pop(name) for name in sorted(_FEATURE_OPTIONS & right.keys())}
    return Handler(function=function, of_features=of_features, **right), mistake


_FEATURE_OPTIONS: Final = frozenset({"on_failure", "fallback"})
"""Options that stand for keys of features in the table of the dependency."""
_LOOKUP: Final = "lookup"
"""Such a key, which the decorator `lookup` adds."""

_FIELDS: Final = {"timeout": "timeout_seconds"}


def _options(options: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the fields of a handler, of the options that are right, and what is wrong with the others."""
    details, broken = [], set()
    try:
        _declared().validate_python(options, strict=True)
    except ValidationError as error:
        for problem in problems_of(error, _Declared):
            option = problem.pointer[1:]
            broken.add(option.partition("/")[0])
            is_missing = option not in options
            details.append(
                f"names no dependency: write {_DECLARED}" if is_missing else f"{option} {problem.detail}"
            )
    right = {_FIELDS.get(option, option): value for option, value in options.items() if option not in broken}
    if (retry := right.get("retry")) is not None:
        right["retry"], wrong = _policy_changes(retry)
        details += wrong
    return right, details


@cache
def _declared() -> TypeAdapter[_Declared]:
    return TypeAdapter(_Declared)


def _function_problem(function: Any, operation_name: str) -> str | None:
    """Return what is wrong where `operation` gets something else than a function; None for a function."""
    if hasattr(function, "_function"):  # what the SDK's decorators leave
        return f"stands above a decorator of the function app: write {_DECLARED} below it"
    if isinstance(function, type) or not (callable(function) and hasattr(function, "__qualname__")):
        return "is not a function: declare one that calls it"
    if operation_name == "<lambda>":
        return 'a lambda needs a name: operation("charge", dependency="payments")'
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return "it yields; an operation returns its result"
    return None


@overload
def wrap[**P, R](  # type: ignore[overload-overlap] # the first that fits is the closest
    function: Callable[P, _Async[R]], /, name: str | None = None, **options: Unpack[OperationOptions]
) -> OperationFunction[Callable[P, _Async[R]], P, R]: ...
@overload
def wrap[**P, R](  # type: ignore[overload-overlap]
    function: Callable[P, R], /, name: str | None = None, **options: Unpack[OperationOptions]
) -> OperationFunction[Callable[P, R], P, R]: ...
@overload
def wrap(
    function: object, /, name: str | None = None, **options: Unpack[OperationOptions]
) -> OperationFunction[Callable[..., Any], ..., Any]: ...
def wrap(function: Any, /, name: str | None = None, **options: Unpack[OperationOptions]) -> Any:
    """Declare a function of another module as an operation; options as of `operation`.

        charge = durable_retry.wrap(billing.charge, dependency="payments")

    Args:
        function: Any function; of an activity, what its decorator returned.
        name: What operations put into `handler`; None means the name of the function.

    Raises:
        HandlerSetupError: As `operation`.
    """
    return operation(name, **options)(user_function(function))


def _policy_changes(retry: Mapping[str, Any]) -> tuple[RetryOverride | None, list[str]]:
    try:
        changes = validated(RetryOverride, dict(retry))
    except InvalidInputError as error:
        return None, [f"retry: {error}"]
    wrong = [f"retry: /{key}: {detail}" for key, detail in policy_problems(policy_from(changes.written()))]
    return changes, wrong


_handlers: dict[str, Handler] = {}
_mistakes: dict[tuple[str, str], HandlerSetupError] = {}

type CheckDeclared = Callable[[Handler | None, HandlerSetupError | None], None]
"""Refuses, by raising, a function that is declared when the app is loaded."""

_check_declared: CheckDeclared | None = None


def taken_mistakes() -> tuple[HandlerSetupError, ...]:
    """Return the mistakes in the functions declared so far."""
    mistakes = tuple(_mistakes.values())
    _mistakes.clear()
    return mistakes


def check_later_ones(check: CheckDeclared) -> None:
    """Let what is declared from now on be checked where it is declared."""
    global _check_declared  # noqa: PLW0603 - the process loads one app
    _check_declared = check


def find_handler(name: str) -> Handler | None:
    return _handlers.get(name)


def handler_of(function: Function | str) -> Handler:
    """Return the handler of a declared function, or of its name.

    Raises:
        LookupError: It is not declared.
        HandlerSetupError: It, or its lookup, is declared wrongly.
    """
    if isinstance(function, str):
        if (named := find_handler(function)) is None:
            raise LookupError(f"no handler {function!r} is registered; import the module that declares it")
        return named
    for at in (_defined_at(function), _lookup_at(function)):
        if (mistake := _mistakes.get(at)) is not None:
            raise mistake
    handler = next((candidate for candidate in _handlers.values() if candidate.function == function), None)
    if handler is None:
        raise LookupError(f"{function!r} is no operation: declare it with @durable_retry.operation")
    return handler


def registered_handlers() -> Mapping[str, Handler]:
    """Return all handlers, by name."""
    return MappingProxyType(_handlers)


def _place_of(function: Any, name: str) -> str:
    code = getattr(inspect.unwrap(user_function(function)), "__code__", None)
    where = function.__module__ if code is None else f"{code.co_filename}:{code.co_firstlineno}"
    return f"{where}: handler {name!r}"


def _lookup_at(function: Any) -> tuple[str, str]:
    module, name = _defined_at(function)
    return module, f"{name}.{_LOOKUP}"


def _defined_at(function: Any) -> tuple[str, str]:
    # This stays the same when its module is imported again.
    return function.__module__, getattr(function, "__qualname__", type(function).__qualname__)
