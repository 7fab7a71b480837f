from durable_retry.base.asks import Ask, is_repeated, with_ask
from tests.support.builders import NOON, after


def test_an_ask_that_comes_again_is_a_repetition_and_a_later_one_is_none() -> None:
    answered = with_ask((), "op-1:1", after(5))
    assert [is_repeated(answered, "op-1:1", after(seconds)) for seconds in (4, 5, 6)] == [True, True, False]
    assert not is_repeated(answered, "op-2:1", NOON)


def test_the_memory_has_the_latest_ask_of_each_lease_and_so_many_leases() -> None:
    answered = with_ask((), "op-1:1", after(5))
    assert with_ask(answered, "op-1:1", after(4)) == answered
    assert with_ask(answered, "op-1:1", None) == answered
    assert with_ask(answered, "op-1:1", after(6)) == (Ask("op-1:1", after(6)),)
    assert with_ask(answered, "op-2:1", NOON, kept=1) == (Ask("op-2:1", NOON),)
