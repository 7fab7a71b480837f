from datetime import timedelta

import pytest

from durable_retry.base.text import (
    DATA_PREFIX,
    kept_bytes,
    kept_text,
    may_mention,
    mentions,
    paused_text,
    time_text,
)
from tests.support.builders import NOON


@pytest.mark.parametrize("words", ["order-42", "ORDER", "reset order", ""])
def test_each_word_stands_somewhere_in_whatever_case(words: str) -> None:
    assert mentions(words, "order-42", None, "Connection Reset")


@pytest.mark.parametrize("words", ["order-43", "reset stock", "42connection"])
def test_one_word_that_stands_nowhere_is_enough_against_it(words: str) -> None:
    assert not mentions(words, "order-42", None, "Connection Reset")


def test_a_text_without_a_word_is_refused_before_it_is_parsed() -> None:
    text = '{"key": "order-42", "detail": "reset"}'
    assert may_mention("Order reset", text)
    assert may_mention("order timeout", text, "Timeout")
    assert not may_mention("order-43", text)


@pytest.mark.parametrize("words", ["Übung", 'a "word"', "back\\slash"])
def test_words_that_json_writes_in_another_way_may_stand_in_any_text(words: str) -> None:
    assert may_mention(words, "{}")


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
