import marshal
from datetime import timedelta
from http import HTTPStatus
from http.cookies import SimpleCookie
from types import SimpleNamespace
from typing import Any

import pytest
from azure.functions.meta import Datum as OutputDatum
from azure_functions_runtime.bindings.datumdef import Datum

from onebox.hub.invoker import TurnRequest
from onebox.worker import wire
from onebox.worker.functions import Binding, Catalogue, Function, RetryOptions
from onebox.worker.runner import Failure, FunctionFailedError, Result, Retry, Trace, json_datum, text_datum

TRIGGER = Binding("body", "queueTrigger", is_output=False, properties={"queueName": "work", "list": [1]})


def over_the_wire(packed: Any) -> Any:
    """A packed value as it arrives."""
    return marshal.loads(marshal.dumps(packed))  # noqa: S302 - what was dumped here


def sent(value: Any) -> Any:
    """A value on the other side."""
    return wire.unpack(over_the_wire(wire.pack(value)))


class Text(str):
    """A text of an app's own class."""

    __slots__ = ()


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        1.5,
        "",
        "short",
        "long" * 1_000,
        "half a pair \ud800" * 30,
        b"",
        b"\0\xff",
        [],
        ["s", 0],
        ["t", "string", ["k", []]],
        ["x", {}],
        {"d": {"n": [None, b"x"]}},
        {},
        {"a": text_datum("short"), "b": text_datum("ü")},
        {"a": text_datum("short"), "b": text_datum("long" * 1_000)},
        {"a": text_datum("short"), "b": Datum(None, "string")},
        {"a": text_datum("short"), "b": json_datum("1")},
    ],
)
def test_a_value_is_the_same_on_the_other_side(value: Any) -> None:
    assert sent(value) == value


@pytest.mark.parametrize("make", [Datum, OutputDatum])
def test_data_of_bindings_are_the_same_on_the_other_side(make: Any) -> None:
    datum = sent(make(value={"body": make(value=b"x", type="bytes"), "cookies": None}, type="http"))
    assert isinstance(datum, Datum)
    assert datum.type == "http"
    assert datum.value == {"body": Datum(b"x", "bytes"), "cookies": None}


def test_collections_of_a_batch_are_the_same_on_the_other_side() -> None:
    datum = sent(Datum(SimpleNamespace(bytes=[b"1", b"2"]), "collection_bytes"))
    assert datum.python_value == [b"1", b"2"]


def test_cookies_are_the_same_on_the_other_side() -> None:
    cookie = SimpleCookie("a=1; Path=/; HttpOnly; SameSite=Lax; Max-Age=5")
    cookie["b"] = 'with "quotes"; and more'
    assert [each.OutputString() for each in sent(cookie).values()] == [
        each.OutputString() for each in cookie.values()
    ]
    assert isinstance(sent(SimpleCookie()), SimpleCookie)


@pytest.mark.parametrize(
    ("derived", "plain"),
    [
        (Text("x"), "x"),
        (HTTPStatus.OK, 200),
        (bytearray(b"x"), b"x"),
        (memoryview(b"x"), b"x"),
        ((1, b""), [1, b""]),
    ],
)
def test_what_is_of_a_derived_class_is_plain_on_the_other_side(derived: Any, plain: Any) -> None:
    arrived = sent(derived)
    assert (arrived, type(arrived)) == (plain, type(plain))
    assert sent({"text": text_datum(derived)}) == {"text": text_datum(plain)}


def test_what_bindings_do_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match="a binding's data cannot be a object"):
        wire.pack(object())


def test_functions_are_the_same_on_the_other_side_but_for_their_code() -> None:
    exponential = RetryOptions(-1, minimum_delay=timedelta(), maximum_delay=timedelta.max)
    fixed = RetryOptions(3, fixed_delay=timedelta(milliseconds=1500))
    output = Binding("$return", "queue", is_output=True, properties={"queueName": "out"})
    functions = [
        Function("plain", "1", TRIGGER, (TRIGGER, output)),
        Function("fixed", "2", TRIGGER, (TRIGGER,), retry=fixed),
        Function("exponential", "3", TRIGGER, (TRIGGER,), retry=exponential),
    ]
    assert list(wire.unpack_functions(over_the_wire(wire.pack_functions(Catalogue(functions))))) == functions


def test_a_run_is_the_same_on_the_other_side() -> None:
    function = Function("work", "1", TRIGGER, (TRIGGER,))
    inputs = [("body", Datum(b"x" * 1_000, "bytes"))]
    retry, trace = Retry(1, 5, Failure("ValueError", "no", "trace")), Trace("00-1", "a=b")
    value = wire.pack_run(
        function,
        inputs,
        {"Id": json_datum('"1"')},
        reason="message 1",
        retry=retry,
        invocation_id="i",
        trace=trace,
    )
    name, given, metadata, named = wire.unpack_run(over_the_wire(value))
    assert (name, given, metadata) == ("work", inputs, {"Id": json_datum('"1"')})
    assert named == {"reason": "message 1", "retry": retry, "invocation_id": "i", "trace": trace}


def test_a_run_without_retries_and_caller_has_none_on_the_other_side() -> None:
    function = Function("work", "1", TRIGGER, (TRIGGER,))
    value = wire.pack_run(function, [], {}, reason="", retry=None, invocation_id=None, trace=None)
    assert wire.unpack_run(over_the_wire(value))[3] == {
        "reason": "",
        "retry": None,
        "invocation_id": None,
        "trace": None,
    }


def test_a_result_is_the_same_on_the_other_side() -> None:
    result = Result(None, {"out": text_datum("x" * 999)})
    assert wire.unpack_result(over_the_wire(wire.pack_result(result))) == result


def test_the_beginning_of_a_long_history_alone_is_left_out() -> None:
    short = TurnRequest("i", "e", [b"a", b"b"], [b"c"])
    assert wire.shortened(short) is short
    one = TurnRequest("i", "e", [b"a" * 100_000], [b"c"])
    assert wire.shortened(one) is one
    long = wire.shortened(TurnRequest("i", "e", [b"a" * 100_000, b"b", b"last"], [b"c"]))
    assert long == TurnRequest("i", "e", [b"last"], [b"c"], 2)
    assert wire.unpack_turn(over_the_wire(wire.pack_turn("name", long))) == ("name", long)


def test_a_failure_is_refused_with_all_that_is_known_of_it() -> None:
    refused = wire.refusal(FunctionFailedError(Failure("ValueError", "no", "trace")))
    assert (refused.name, refused.details) == (wire.FAILED, ["ValueError", "no", "trace"])
