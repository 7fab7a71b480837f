"""Whatever strangers send: no parser raises anything but its own error, and no form hides a difference."""

import base64
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from posixpath import normpath
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from durable_retry.base.documents import json_problems, read_checked, read_json
from durable_retry.base.json_forms import from_newest_first, from_rfc3339, optional_from_rfc3339
from durable_retry.base.trace_context import TraceContext
from durable_retry.base.validation import (
    InvalidInputError,
    header_name_problem,
    header_value_problem,
    path_problem,
    pointed_at,
    pointer_of,
    pointer_problem,
)
from durable_retry.features.schedules.rules import Ncrontab, parse_ncrontab
from durable_retry.features.workflows.rules.references import Reference
from durable_retry.intake.queue import decoded
from durable_retry.rules.config.dependencies_file import ConfigError, parse_config
from durable_retry.rules.dead_letters.record import failure_group
from durable_retry.rules.operations.envelope import parse_key
from durable_retry.rules.operations.keys import canonical_json, fingerprint, operation_id_for
from durable_retry.rules.operations.request import parse_operation
from durable_retry.rules.operations.status import MAX_BYTES, fitted_status, size_bytes
from durable_retry.rules.retry.history import History
from durable_retry.rules.retry.retry_after import MAX_HINT_SECONDS, parse_http_date, parse_retry_after
from durable_retry_console.finding.question import IndexCursor, cursor_content, read_place
from tests.support.builders import NOON, a_record
from tests.support.narrowing import existing

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)
numbers = st.integers(-10, 10**20).map(str) | st.floats().map(str)
RATE_LIMITS = ["ratelimit", "ratelimit-policy", "ratelimit-reset", "ratelimit-remaining"]
LEGACY = ["x-ratelimit-reset", "x-ratelimit-remaining", "retry-after-ms", "x-ms-retry-after-ms"]
names = st.sampled_from(["retry-after", "date", *RATE_LIMITS, *LEGACY])
dates = st.datetimes().map(lambda at: at.strftime("%a, %d %b %Y %H:%M:%S GMT"))
fields = (
    st.text() | numbers | dates | st.from_regex(r'"[a-z]*";r=[0-9]+;t=[0-9]+(, "q";r=0)?', fullmatch=True)
)


def turned(value: Any) -> Any:
    """Give the same document with every object's keys in the opposite order."""
    if isinstance(value, dict):
        return {name: turned(item) for name, item in reversed(value.items())}
    return [turned(item) for item in value] if isinstance(value, list) else value


@given(st.dictionaries(names, fields), st.sampled_from([429, 503]))
def test_reading_the_wish_for_a_wait_never_raises_and_stays_sane(
    headers: dict[str, str], status: int
) -> None:
    hint = parse_retry_after(headers, status_code=status, now=NOON)
    assert hint is None or 0 <= hint.delay_seconds <= MAX_HINT_SECONDS


@given(st.integers(0, 10**9 - 1))  # From here on it is an epoch time.
def test_plain_seconds_are_taken_as_they_are(seconds: int) -> None:
    hint = existing(parse_retry_after({"Retry-After": str(seconds)}, status_code=503, now=NOON))
    assert hint.delay_seconds == min(seconds, MAX_HINT_SECONDS)


@given(st.text() | dates)
def test_reading_a_date_never_raises(text: str) -> None:
    parse_http_date(text)


@given(documents)
def test_a_fingerprint_does_not_depend_on_the_order_of_keys(document: Any) -> None:
    assert fingerprint("d", turned(document)) == fingerprint("d", document)


@given(documents)
def test_a_fingerprint_survives_json(document: Any) -> None:
    assert fingerprint("d", json.loads(json.dumps(document))) == fingerprint("d", document)


@given(documents)
def test_the_canonical_form_loses_nothing(document: Any) -> None:
    assert json.loads(canonical_json(document)) == document


@given(documents, st.text())
def test_any_pointer_can_be_followed(document: Any, pointer: str) -> None:
    assert len(pointed_at(document, pointer)) <= 1
    pointer_problem(pointer)


@given(st.lists(st.text(), max_size=4), scalars)
def test_a_made_pointer_finds_its_place(parts: list[str], value: Any) -> None:
    document = value
    for part in reversed(parts):
        document = {part: document}
    assert pointer_problem(pointer_of(*parts)) is None
    assert pointed_at(document, pointer_of(*parts)) == [value]


@given(st.text())
def test_reading_a_key_gives_visible_ascii_or_the_error(text: str) -> None:
    try:
        key = parse_key(text)
    except InvalidInputError:
        return
    assert 1 <= len(key) <= 255
    assert all(0x21 <= ord(character) <= 0x7E for character in key)


@given(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=255))
def test_a_key_reads_the_same_quoted(key: str) -> None:
    quoted = key.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_key(f'"{quoted}"') == key


@given(st.text(), st.text(), st.text(), st.text())
def test_ids_of_different_scopes_and_keys_differ(
    scope: str, key: str, other_scope: str, other_key: str
) -> None:
    assume((scope, key) != (other_scope, other_key))
    assert operation_id_for(scope, key) != operation_id_for(other_scope, other_key)
    assert len(operation_id_for(scope, key)) <= 40


@given(st.text() | st.binary())
def test_reading_json_gives_a_value_or_the_error(text: str | bytes) -> None:
    try:
        read_json(text)
    except InvalidInputError as error:
        assert error.problems  # noqa: PT017  either way is right; the error must say why


@given(document=documents, is_ascii=st.booleans(), indent=st.sampled_from([None, 1]))
def test_a_document_is_read_as_it_was_written(document: Any, *, is_ascii: bool, indent: int | None) -> None:
    text = json.dumps(document, ensure_ascii=is_ascii, indent=indent)
    try:
        read = read_checked(text, lambda read: read)
    except InvalidInputError as error:
        assert json_problems(document) == list(error.problems)  # noqa: PT017  as above
    else:
        assert repr(read) == repr(json.loads(text))


@given(
    documents
    | st.dictionaries(st.sampled_from(["request", "retry", "handler", "on_success", "key"]), documents)
)
def test_validating_an_operation_gives_a_request_or_the_error(document: Any) -> None:
    try:
        parse_operation(document)
    except InvalidInputError as error:
        assert all(problem.detail for problem in error.problems)  # noqa: PT017  as above


@given(st.text())
def test_reading_the_settings_file_gives_a_config_or_the_error(text: str) -> None:
    try:
        parse_config(text, {})
    except ConfigError as error:
        assert error.problems  # noqa: PT017  as above


segments = st.sampled_from(
    [
        "a",
        "b.json",
        "...",
        "",
        ".",
        "..",
        "..;v=1",
        "%2e%2e",
        "%252E%252e",
        "..%2f",
        "\\..",
        "?",
        "#",
        "http:",
    ]
)
paths = st.lists(segments, max_size=5).map("/".join) | st.text(max_size=30)


@given(paths)
def test_a_path_that_is_let_through_cannot_climb(path: str) -> None:
    if path_problem(path) is not None:
        return
    decoded = path
    for _ in range(5):
        # Every server on the way may decode once more, read a backslash as a slash, and drop parameters.
        plain = "/".join(segment.split(";")[0] for segment in decoded.replace("\\", "/").split("/"))
        assert normpath(f"/base/{plain}").startswith("/base")
        assert not plain.startswith("//")
        assert urlsplit(plain).scheme == ""
        decoded = unquote(decoded)


@given(st.text())
def test_a_header_that_is_let_through_cannot_split_a_request(text: str) -> None:
    if header_name_problem(text) is None or header_value_problem(text) is None:
        assert not set(text) & set("\r\n\0")


@given(st.text() | st.none())
def test_grouping_never_raises(error: str | None) -> None:
    group = failure_group(dependency="d", category="c", reason="r", status_code=None, error=error)
    assert len(group) == 18


@given(
    st.lists(st.text(max_size=1_000), max_size=25),
    st.lists(st.text(max_size=300), max_size=12),
    st.integers(0, 10**9),
)
def test_a_status_always_fits(errors: list[str], reasons: list[str], first: int) -> None:
    history = History()
    for number, error in enumerate(errors, first):
        history = history.with_attempt(a_record(number, error=error, delay_reasons=tuple(reasons)))
    fitted = fitted_status({"status": "waiting_retry", "attempts": history.to_json()["attempts"]})
    assert size_bytes(fitted) <= MAX_BYTES
    assert len(fitted["attempts"]) == min(len(errors), 20)


WITH_OFFSETS = st.builds(
    "{}{}".format,
    st.datetimes().map(lambda at: at.isoformat()),
    st.sampled_from(["Z", "+14:00", "-14:00", "+23:59", "-23:59", ""]),
)
CURSORS = st.builds(
    lambda text: base64.urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).decode(),
    documents.map(json.dumps) | st.text(),
)
SCHEDULES = st.lists(
    st.from_regex(r"[*0-9a-zA-Z,/#-]{1,7}", fullmatch=True) | st.just("*"), min_size=5, max_size=6
).map(" ".join)
TEXTS = st.text() | WITH_OFFSETS | numbers | dates | CURSORS | SCHEDULES
READERS = {
    from_rfc3339: datetime,
    optional_from_rfc3339: datetime,
    from_newest_first: datetime,
    parse_http_date: datetime | None,
    parse_key: str,
    parse_ncrontab: Ncrontab,
    Reference.parse: Reference,
    TraceContext.read: TraceContext | None,
    read_place: IndexCursor | str,
    decoded: str,
    cursor_content: object,
}


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__qualname__)
@given(text=TEXTS)
@example(text="9999-12-31T23:59:59-14:00")
@example(text="0001-01-01T00:00:00+14:00")
@example(text="-99999999999999999999")
@example(text=base64.urlsafe_b64encode(50_000 * b"[").decode())
def test_a_parser_of_text_gives_a_value_or_a_value_error(reader: Callable[[str], Any], text: str) -> None:
    with suppress(ValueError):
        value = reader(text)
        assert isinstance(value, READERS[reader])
        assert not isinstance(value, datetime) or value.utcoffset() == timedelta(0)
