from bench.waiting import Begun, Look, table

FIRST = Begun(answers=1.0, succeeded=1.5, onebox=100 * 2**20, store=50 * 2**20)
AGAIN = Begun(answers=4.0, succeeded=4.5, onebox=90 * 2**20, store=50 * 2**20)


def a_look(waiting: int, onebox: float, used: int, read: float | None = 0.001) -> Look:
    return Look(
        waiting, filled=3.0, onebox=onebox, store=60e6, used=used, processor=0.01, read=read, healthy=0.02
    )


LOOKS = [
    a_look(0, 110e6, 1_000_000, read=None),
    a_look(1_000, 112e6, 3_000_000),
    a_look(5_000, 116e6, 13_000_000),
    a_look(5_000, 115e6, 13_500_000),
]


def values(name: str) -> tuple[str, ...]:
    found = table(FIRST, LOOKS, AGAIN, 0)
    assert all(len(row.values) == len(found.columns) for row in found.rows)
    return next(row.values for row in found.rows if row.name == name)


def test_memory_for_each_is_what_came_since_the_column_before() -> None:
    assert values("- for each more that waits") == ("-", "-", "2.0", "1.0", "-")


def test_what_the_store_takes_for_each_is_counted_from_the_store_in_which_none_waits() -> None:
    assert values("- for each that waits") == ("-", "-", "2.0", "2.4", "2.5")


def test_the_starts_stand_in_the_first_column_and_the_last() -> None:
    assert values("start until the host answers") == ("1.0", "-", "-", "-", "4.0")
    assert values("start until a new one succeeded") == ("1.5", "-", "-", "-", "4.5")
