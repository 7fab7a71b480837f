import pytest

from durable_retry.engine.base.text import mentions


@pytest.mark.parametrize("words", ["order-42", "ORDER", "reset order", ""])
def test_each_word_stands_somewhere_in_whatever_case(words: str) -> None:
    assert mentions(words, "order-42", None, "Connection Reset")


@pytest.mark.parametrize("words", ["order-43", "reset stock", "42connection"])
def test_one_word_that_stands_nowhere_is_enough_against_it(words: str) -> None:
    assert not mentions(words, "order-42", None, "Connection Reset")
