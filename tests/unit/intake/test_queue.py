import base64
import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_retry.intake.queue import decoded

TEXT = json.dumps({"dependency": "payments", "request": {"method": "GET", "path": "/\u00e4"}})


def test_plain_json_is_taken_as_it_is() -> None:
    assert decoded(TEXT) == TEXT


@pytest.mark.parametrize("around", ["", "\n", " "])
def test_base64_of_json_is_undone(around: str) -> None:
    assert decoded(around + base64.b64encode(TEXT.encode()).decode() + around) == TEXT


LONG = TEXT.replace("/", "/?>~" * 40)


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + LONG,
        base64.b64encode(b"\xef\xbb\xbf" + LONG.encode()).decode(),
        base64.encodebytes(LONG.encode()).decode(),
        base64.urlsafe_b64encode(LONG.encode()).decode(),
        base64.urlsafe_b64encode(LONG.encode() + b" ").decode().rstrip("="),
        base64.b64encode(LONG.encode("utf-16")).decode(),
        "\ufeff" + base64.b64encode(LONG.encode()).decode(),
    ],
)
def test_every_form_of_base64_is_undone_and_byte_order_marks_are_left_out(text: str) -> None:
    assert decoded(text).rstrip() == LONG


@given(st.text())
def test_reading_a_message_never_fails(text: str) -> None:
    assert isinstance(decoded(text), str)
    with suppress(ValueError):
        assert isinstance(decoded(base64.b64encode(text.encode()).decode()), str)


@pytest.mark.parametrize("text", ["", "nope", "not base64!", "/////w==", "123", "\u00e4", "\x00"])
def test_anything_else_stays_as_it_is_for_the_dead_letter(text: str) -> None:
    assert decoded(text) == text
