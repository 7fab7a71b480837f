"""Names of events and messages: always a key, and never one for two."""

from hypothesis import given
from hypothesis import strategies as st

from durable_retry.rules.operations.keys import EnvelopeName, envelope_key, source_name
from durable_retry.rules.operations.request import parse_operation

ANY_TEXT = st.text(st.characters(), max_size=40)


def is_a_key(key: str) -> bool:
    """Holds a key to what a caller may choose, and so to what the header downstream carries."""
    return parse_operation({"handler": "h", "key": key}).key == key


@given(source=ANY_TEXT, event_id=ANY_TEXT)
def test_an_event_of_any_name_gets_a_key(source: str, event_id: str) -> None:
    assert is_a_key(envelope_key(EnvelopeName(source, event_id)).key)


@given(native_id=st.text(st.characters(), min_size=1, max_size=300))
def test_a_source_s_id_of_any_form_gets_a_key(native_id: str) -> None:
    assert is_a_key(source_name("queue", "operations", native_id).key)


@given(first=st.tuples(ANY_TEXT, ANY_TEXT), second=st.tuples(ANY_TEXT, ANY_TEXT))
def test_two_events_never_share_a_key(first: tuple[str, str], second: tuple[str, str]) -> None:
    keys = {envelope_key(EnvelopeName(*parts)).key for parts in (first, second)}
    assert len(keys) == len({first, second})
