import pytest

from durable_retry.base.errors import OverloadedError
from durable_retry.base.names import Role
from durable_retry.features.callers.limit_keys import LimitKeysOfCallers
from durable_retry.features.callers.reading import known_caller
from tests.support.builders import NOON, after


def test_a_caller_uses_so_many_limit_keys_within_a_minute_each_as_often_as_it_likes() -> None:
    keys = LimitKeysOfCallers(2)
    for second, key in enumerate(["a", "b", "a", "b", "a"]):
        keys.note("shop", key, after(second))
    with pytest.raises(OverloadedError, match="shop has used 2 limit keys within a minute"):
        keys.note("shop", "c", after(62))
    keys.note("shop", "c", after(63))  # b is a minute old
    keys.note("billing", "d", after(63))


@pytest.mark.parametrize(("most", "name"), [(0, "shop"), (1, None)])
def test_whoever_has_no_bound_or_no_name_is_not_counted(most: int, name: str | None) -> None:
    caller = known_caller(name, Role.OPERATOR, LimitKeysOfCallers(most))
    for number in range(3):
        caller.note_limit_key(f"key-{number}", NOON)


def test_callers_that_come_no_more_are_forgotten() -> None:
    keys = LimitKeysOfCallers(2)
    for second, caller in enumerate(["first", "second", "first"]):
        keys.note(caller, "a", after(second))
    keys.note("third", "a", after(61))
    assert list(keys._used) == ["first", "third"]
    keys.note("first", "a", after(130))
    assert keys._used == {"first": {"a": after(130)}}
