"""The messages between the host and a worker process: a JSON value and parts of bytes each (see `link`).

Bytes and long texts are parts. In the JSON value every list begins with a tag, such as "b" for bytes or "l"
for a list of the data, so that the two cannot be confused.
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
from onebox.worker.link import Content, RefusedError
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

_LONG_TEXT: Final = 256
_SHORT_HISTORY_BYTES: Final = 16 * 1024


def pack(value: Any, parts: list[bytes]) -> Any:
    """Return a value as JSON; append its bytes and long texts to the parts.

    Raises:
        TypeError: No binding has data of its type.
    """
    packed: Any
    match value:
        case Datum() | OutputDatum():
            packed = ["t", value.type, pack(value.value, parts)]
        case str():
            packed = str(value) if len(value) < _LONG_TEXT else ["s", _put(_bytes(value), parts)]
        case SimpleCookie():
            packed = ["k", [[each.key, each.value, each.coded_value, dict(each)] for each in value.values()]]
        case dict() if (texts := _texts(value)) is not None:
            packed = ["x", texts]
        case Mapping():
            packed = ["d", {str(name): pack(each, parts) for name, each in value.items()}]
        case bytes() | bytearray() | memoryview():
            packed = ["b", _put(bytes(value), parts)]
        case None | bool() | int() | float():
            packed = value
        case list() | tuple():
            packed = ["l", [pack(each, parts) for each in value]]
        case SimpleNamespace():
            packed = ["n", {name: pack(each, parts) for name, each in vars(value).items()}]
        case _:
            raise TypeError(f"a binding's data cannot be a {type(value).__name__}")
    return packed


def _texts(members: dict[Any, Any]) -> dict[str, str] | None:
    """Return the texts of a binding's short strings, such as headers; None when there is anything else."""
    texts = {}
    for name, datum in members.items():
        if not isinstance(datum, (Datum, OutputDatum)) or datum.type != "string":
            return None
        text = datum.value
        if not isinstance(text, str) or len(text) >= _LONG_TEXT:
            return None
        texts[str(name)] = str(text)
    return texts


def unpack(packed: Any, parts: Sequence[bytes]) -> Any:
    """Return the value that `pack` was given."""
    if not isinstance(packed, list):
        return packed
    value: Any
    match packed:
        case ["t", kind, content]:
            value = Datum(unpack(content, parts), kind)
        case ["x", texts]:
            value = {name: Datum(text, "string") for name, text in texts.items()}
        case ["d", members]:
            value = {name: unpack(each, parts) for name, each in members.items()}
        case ["b", number]:
            value = parts[number]
        case ["s", number]:
            value = _text(parts[number])
        case ["k", morsels]:
            value = _cookie(morsels)
        case ["l", items]:
            value = [unpack(each, parts) for each in items]
        case [_, members]:
            value = SimpleNamespace(**{name: unpack(each, parts) for name, each in members.items()})
    return value


def _put(part: bytes, parts: list[bytes]) -> int:
    parts.append(part)
    return len(parts) - 1


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(part: bytes) -> str:
    return part.decode("utf-8", "surrogatepass")


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
) -> Content:
    """Return a request to run a function; see `Runner.run`."""
    parts: list[bytes] = []
    error = None if retry is None or retry.error is None else pack_failure(retry.error)
    value = [
        function.name,
        [[name, pack(datum, parts)] for name, datum in inputs],
        pack(metadata, parts),
        reason,
        retry and [retry.count, retry.max_count, error],
        invocation_id,
        trace and [trace.parent, trace.state],
    ]
    return value, parts


def unpack_run(value: Any, parts: Sequence[bytes]) -> tuple[str, list[Input], dict[str, Any], dict[str, Any]]:
    """Return the function's name, the inputs, the metadata, and the named arguments of `Runner.run`."""
    name, inputs, metadata, reason, retry, invocation_id, trace = value
    named = {
        "reason": reason,
        "retry": retry and Retry(retry[0], retry[1], retry[2] and Failure(*retry[2])),
        "invocation_id": invocation_id,
        "trace": trace and Trace(*trace),
    }
    return name, [(each, unpack(datum, parts)) for each, datum in inputs], unpack(metadata, parts), named


# Keys of an ASGI scope that describe the request; the others hold objects of the server's process.
_SCOPE: Final = frozenset(
    {
        *("type", "asgi", "http_version", "scheme", "method", "root_path", "path", "raw_path"),
        *("query_string", "headers", "client", "server"),
    }
)


def pack_request(invocation_id: str, what: str, scope: Mapping[str, Any]) -> Content:
    """Return a request for a streaming function; `what` names the function in the log."""
    parts: list[bytes] = []
    request = {name: value for name, value in scope.items() if name in _SCOPE}
    return [invocation_id, what, pack(request, parts)], parts


def pack_piece(invocation_id: str, message: Mapping[str, Any]) -> Content:
    """Return a piece of a streamed request or answer: an ASGI message."""
    parts: list[bytes] = []
    return [invocation_id, pack(message, parts)], parts


def pack_result(result: Result) -> Content:
    """Return the result of a function."""
    parts: list[bytes] = []
    return [pack(result.returned, parts), pack(result.outputs, parts)], parts


def unpack_result(value: Any, parts: Sequence[bytes]) -> Result:
    """Return the result that `pack_result` was given."""
    returned, outputs = value
    return Result(unpack(returned, parts), unpack(outputs, parts))


def pack_failure(failure: Failure) -> list[str]:
    """Return a failure as JSON."""
    return [failure.error_type, failure.message, failure.stack_trace]


def refusal(error: FunctionFailedError | InvocationFailedError) -> RefusedError:
    """Return the refusal with which a worker process reports that a function failed."""
    if isinstance(error, FunctionFailedError):
        return RefusedError(FAILED, pack_failure(error.failure))
    return RefusedError(FAILED, [error.error_type, error.message, error.stack_trace])


def pack_turn(name: str, request: TurnRequest) -> Content:
    """Return a request for a turn."""
    value = [name, request.instance_id, request.execution_id, len(request.past), request.missing]
    return value, [*request.past, *request.new]


def unpack_turn(value: Any, parts: Sequence[bytes]) -> tuple[str, TurnRequest]:
    """Return an orchestrator's name and the request for its turn."""
    name, instance_id, execution_id, past, missing = value
    return name, TurnRequest(instance_id, execution_id, parts[:past], parts[past:], missing)


def shortened(request: TurnRequest) -> TurnRequest:
    """Leave out the beginning of a long history; the process that ran the last turn has kept it."""
    past = request.past
    if len(past) < 2 or sum(map(len, past)) < _SHORT_HISTORY_BYTES:  # noqa: PLR2004 - the last one always goes
        return request
    return TurnRequest(request.instance_id, request.execution_id, past[-1:], request.new, len(past) - 1)


def pack_text(text: str | None) -> list[bytes]:
    """Return the parts for a text that may be None."""
    return [] if text is None else [_bytes(text)]


def unpack_text(parts: Sequence[bytes]) -> str | None:
    """Return the text that `pack_text` was given."""
    return _text(parts[0]) if parts else None
