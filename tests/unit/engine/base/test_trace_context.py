import pytest

from durable_retry.engine.base.trace_context import MAX_TRACESTATE_CHARS, TraceContext, trace_in

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (PARENT, PARENT),
        (f" {PARENT} ", PARENT),
        (PARENT.replace("-01", "-00"), PARENT.replace("-01", "-00")),
        (f"cc{PARENT[2:]}", f"cc{PARENT[2:]}"),
        (f"cc{PARENT[2:]}-what-the-future-brings", f"cc{PARENT[2:]}"),
    ],
)
def test_a_valid_traceparent_is_kept(given: str, kept: str) -> None:
    context = TraceContext.read(given)
    assert context is not None
    assert (context.traceparent, context.trace_id, context.tracestate) == (kept, TRACE_ID, "")


@pytest.mark.parametrize(
    "given",
    [
        None,
        "",
        7,
        "nonsense",
        PARENT.upper(),
        PARENT[:-1],
        f"{PARENT}-more",
        f"{PARENT}x",
        f"ff{PARENT[2:]}",
        f"cc{PARENT[2:]}.more",
        PARENT.replace(TRACE_ID, "0" * 32),
        PARENT.replace("b7ad6b7169203331", "0" * 16),
    ],
)
def test_anything_else_is_no_trace(given: object) -> None:
    assert TraceContext.read(given) is None


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("vendor=1,other=2", "vendor=1,other=2"),
        (None, ""),
        ("", ""),
        (3, ""),
        ("line\nbreak", ""),
        ("v=" + "x" * MAX_TRACESTATE_CHARS, ""),
    ],
)
def test_a_tracestate_that_cannot_be_used_does_not_cost_the_trace(given: object, kept: str) -> None:
    context = TraceContext.read(PARENT, given)
    assert context is not None
    assert context.tracestate == kept


@pytest.mark.parametrize("context", [TraceContext(PARENT), TraceContext(PARENT, "vendor=1"), None])
def test_it_survives_json(context: TraceContext | None) -> None:
    assert TraceContext.from_json(None if context is None else context.to_json()) == context


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        ({"traceparent": PARENT, "tracestate": "v=1"}, TraceContext(PARENT, "v=1")),
        ({"Diagnostic-Id": PARENT}, TraceContext(PARENT)),
        ({"Diagnostic-Id": "|of-an-older-form."}, None),
        ({}, None),
        (None, None),
        (["traceparent"], None),
    ],
)
def test_the_properties_of_a_message_tell_where_it_was_sent(
    properties: object, found: TraceContext | None
) -> None:
    assert trace_in(properties) == found
