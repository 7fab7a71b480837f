"""The messages between the host and a worker process, as values that `link` sends.

In the data of bindings every tuple begins with a tag, such as "t" for a `Datum`, and what follows it.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from http.cookies import Morsel, SimpleCookie
from types import SimpleNamespace
from typing import Any, Final

from azure.functions.meta import Datum as OutputDatum
from azure_functions_runtime.bindings.datumdef import Datum

from onebox.hub.invoker import InvocationFailedError, TurnRequest
from onebox.worker.functions import Binding, Catalogue, Function, RetryOptions
from onebox.worker.link import RefusedError
from onebox.worker.runner import Failure, FunctionFailedError, Input, Result, Retry, Trace

# Methods that the host calls in a worker process, or (from CLIENT on) the process in the host.
FUNCTIONS: Final = "functions"
SERVE: Final = "serve"
RUN: Final = "run"
TURN: Final = "turn"
BATCH: Final = "batch"
ACTIVITY: Final = "activity"
STOP: Final = "stop"
LOOK: Final = "look"
STREAM: Final = "stream"
CLIENT: Final = "client"
ARRIVED: Final = "arrived"
RECEIVE: Final = "receive"
SEND: Final = "send"

# Why a call is refused.
FAILED: Final = "failed"  # the function failed
HISTORY_NEEDED: Final = "history needed"
CANNOT_START: Final = "cannot start"
STATUS: Final = "status"  # a gRPC status

MOVABLE: Final = frozenset({TURN, BATCH})
"""What may run twice: the hub stores the outcome of one."""

_PLAIN: Final[tuple[type[Any], ...]] = (str, bytes, int, float)
_AS_IT_IS: Final = frozenset({*_PLAIN, bool, type(None)})
_SHORT_HISTORY_BYTES: Final = 16 * 1024


def pack(value: Any) -> Any:
    """Return the data of a binding as a value.

    Raises:
        TypeError: No binding has data of its type.
    """
    if type(value) in _AS_IT_IS:
        return value
    packed: Any
    match value:
        case Datum() | OutputDatum():
            packed = ("t", value.type, pack(value.value))
        case SimpleCookie():
            packed = ("k", [(each.key, each.value, each.coded_value, dict(each)) for each in value.values()])
        case dict() if (texts := _texts(value)) is not None:
            packed = ("x", texts)
        case Mapping():
            packed = {str(name): pack(each) for name, each in value.items()}
        case list() | tuple():
            packed = [pack(each) for each in value]
        case SimpleNamespace():
            packed = ("n", pack(vars(value)))
        case bytearray() | memoryview():
            packed = bytes(value)
        case str() | bytes() | int() | float():
            packed = next(plain(value) for plain in _PLAIN if isinstance(value, plain))
        case _:
            raise TypeError(f"a binding's data cannot be a {type(value).__name__}")
    return packed


def _texts(members: dict[Any, Any]) -> dict[str, str] | None:
    """Return the texts of a binding's strings, such as headers; None when there is anything else."""
    texts = {}
    for name, datum in members.items():
        if not isinstance(datum, (Datum, OutputDatum)) or datum.type != "string":
            return None
        text = datum.value
        if not isinstance(text, str):
            return None
        texts[str(name)] = str(text)
    return texts


def unpack(packed: Any) -> Any:
    """Return the data that `pack` was given."""
    if type(packed) in _AS_IT_IS:
        return packed
    value: Any
    match packed:
        case dict():
            value = {name: unpack(each) for name, each in packed.items()}
        case list():
            value = [unpack(each) for each in packed]
        case ("t", kind, content):
            value = Datum(unpack(content), kind)
        case ("x", texts):
            value = {name: Datum(text, "string") for name, text in texts.items()}
        case ("k", morsels):
            value = _cookie(morsels)
        case _, members:
            value = SimpleNamespace(**unpack(members))
    return value


def _cookie(morsels: list[Any]) -> SimpleCookie:
    cookie = SimpleCookie()
    for key, value, coded_value, attributes in morsels:
        morsel: Morsel[str] = Morsel()
        morsel.set(key, value, coded_value)
        morsel.update(attributes)
        dict.__setitem__(cookie, key, morsel)
    return cookie


def pack_functions(catalogue: Catalogue) -> list[Any]:
    """Return the app's functions; their code stays where it is."""
    return [
        [
            each.name,
            each.function_id,
            [
                [binding.name, binding.type, binding.is_output, binding.properties]
                for binding in each.bindings
            ],
            _packed_retry(each.retry),
        ]
        for each in catalogue
    ]


def unpack_functions(packed: list[Any]) -> Catalogue:
    """Return the functions of an app that another process has loaded."""
    return Catalogue(_functions(packed))


def _functions(packed: list[Any]) -> Iterator[Function]:
    for name, function_id, found, retry in packed:
        bindings = tuple(Binding(*each) for each in found)
        trigger = next(each for each in bindings if each.is_trigger)
        options = _retry_options(retry)
        yield Function(name, function_id, trigger, bindings, retry=options)


def _packed_retry(options: RetryOptions | None) -> Any:
    if options is None:
        return None
    delays = (options.fixed_delay, options.minimum_delay, options.maximum_delay)
    return [options.max_retry_count, *map(_packed_delay, delays)]


def _packed_delay(delay: timedelta | None) -> Any:
    return None if delay is None else [delay.days, delay.seconds, delay.microseconds]


def _retry_options(packed: Any) -> RetryOptions | None:
    if packed is None:
        return None
    fixed, least, longest = (timedelta(*each) if each else None for each in packed[1:])
    return RetryOptions(packed[0], fixed, least or timedelta(), longest or timedelta())


def pack_run(
    function: Function,
    inputs: Sequence[Input],
    metadata: Mapping[str, Any],
    *,
    reason: str,
    retry: Retry | None,
    invocation_id: str | None,
    trace: Trace | None,
) -> Any:
    """Return a request to run a function; see `Runner.run`."""
    error = None if retry is None or retry.error is None else pack_failure(retry.error)
    return (
        function.name,
        [(name, pack(datum)) for name, datum in inputs],
        pack(metadata),
        reason,
        retry and (retry.count, retry.max_count, error),
        invocation_id,
        trace and (trace.parent, trace.state),
    )


def unpack_run(value: Any) -> tuple[str, list[Input], dict[str, Any], dict[str, Any]]:
    """Return the function's name, the inputs, the metadata, and the named arguments of `Runner.run`."""
    name, inputs, metadata, reason, retry, invocation_id, trace = value
    named = {
        "reason": reason,
        "retry": retry and Retry(retry[0], retry[1], retry[2] and Failure(*retry[2])),
        "invocation_id": invocation_id,
        "trace": trace and Trace(*trace),
    }
    return name, [(each, unpack(datum)) for each, datum in inputs], unpack(metadata), named


# Keys of an ASGI scope that describe the request; the others hold objects of the server's process.
_SCOPE: Final = frozenset(
    {
        *("type", "asgi", "http_version", "scheme", "method", "root_path", "path", "raw_path"),
        *("query_string", "headers", "client", "server"),
    }
)


def pack_scope(scope: Mapping[str, Any]) -> Any:
    """Return what describes the request of an ASGI scope."""
    return pack({name: value for name, value in scope.items() if name in _SCOPE})


def pack_result(result: Result) -> Any:
    """Return the result of a function."""
    return pack(result.returned), pack(result.outputs)


def unpack_result(value: Any) -> Result:
    """Return the result that `pack_result` was given."""
    return Result(*map(unpack, value))


def pack_failure(failure: Failure | InvocationFailedError) -> list[Any]:
    """Return a failure as a value."""
    return [pack(text) for text in (failure.error_type, failure.message, failure.stack_trace)]


def refusal(error: FunctionFailedError | InvocationFailedError) -> RefusedError:
    """Return the refusal with which a worker process reports that a function failed."""
    failure = error.failure if isinstance(error, FunctionFailedError) else error
    return RefusedError(FAILED, pack_failure(failure))


def pack_turn(name: str, request: TurnRequest) -> Any:
    """Return a request for a turn."""
    past, new = list(request.past), list(request.new)
    return name, request.instance_id, request.execution_id, past, new, request.missing


def unpack_turn(value: Any) -> tuple[str, TurnRequest]:
    """Return an orchestrator's name and the request for its turn."""
    return value[0], TurnRequest(*value[1:])


def shortened(request: TurnRequest) -> TurnRequest:
    """Leave out the beginning of a long history; the process that ran the last turn has kept it."""
    past = request.past
    if len(past) < 2 or sum(map(len, past)) < _SHORT_HISTORY_BYTES:  # noqa: PLR2004 - the last one always goes
        return request
    return TurnRequest(request.instance_id, request.execution_id, past[-1:], request.new, len(past) - 1)
