from datetime import timedelta

import pytest

from durable_retry.base.text import (
    DATA_PREFIX,
    kept_bytes,
    kept_text,
    paused_text,
    time_text,
)
from tests.support.builders import NOON


def test_an_instant_in_a_sentence_is_one_that_a_view_can_show_in_the_zone_of_its_reader() -> None:
    assert time_text(NOON + timedelta(milliseconds=1_250)) == "2026-11-21T12:00:01Z"
    assert paused_text("429 (Retry-After 60 s)", NOON) == (
        "paused by 429 (Retry-After 60 s) until 2026-11-21T12:00:00Z"
    )


@pytest.mark.parametrize("content", [b"", b"order-42", "\u00fc".encode(), b"\xff\x00", b"\x80" * 50])
def test_bytes_are_kept_as_a_text_and_come_back(content: bytes) -> None:
    assert kept_bytes(kept_text(content)) == content


def test_what_a_person_wrote_into_a_kept_text_is_taken_as_it_stands() -> None:
    assert kept_bytes("a\ud800b") == b"a?b"
    assert kept_bytes(f"{DATA_PREFIX}no base64!") == f"{DATA_PREFIX}no base64!".encode()
