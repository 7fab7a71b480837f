from onebox.hub.timers import Timers


class Stored:
    """The store's timers, and how often they were read."""

    def __init__(self, rows: list[tuple[int, str]]) -> None:
        self.rows = rows
        self.reads = 0

    def load(self, after_us: int, limit: int) -> list[tuple[int, str]]:
        """Answer as the query does: up to and including all that is due with number `limit + 1`."""
        self.reads += 1
        later = sorted(row for row in self.rows if row[0] > after_us)
        if len(later) <= limit:
            return later
        return [row for row in later if row[0] <= later[limit][0]]


def test_wakes_in_order_of_time() -> None:
    timers = Timers(Stored([(30, "c"), (10, "a"), (20, "b")]).load)
    timers.refill()
    assert timers.next_due_us() == 10
    assert timers.pop_due(20) == ["a", "b"]
    assert timers.next_due_us() == 30


def test_never_wakes_early() -> None:
    timers = Timers(Stored([(10, "a")]).load)
    timers.refill()
    assert timers.pop_due(9) == []


def test_says_when_a_new_timer_is_the_next() -> None:
    timers = Timers(Stored([(20, "b")]).load)
    timers.refill()
    assert timers.add(10, "a")
    assert not timers.add(30, "c")


def test_holds_only_the_nearest_and_reads_on_when_they_are_used_up() -> None:
    stored = Stored([(at, f"t{at}") for at in range(1, 101)])
    timers = Timers(stored.load, limit=10)
    timers.refill()
    assert len(timers._stored) == 11
    assert timers.pop_due(100) == [f"t{at}" for at in range(1, 101)]
    assert stored.reads <= 12


def test_a_timer_beyond_the_horizon_stays_in_the_store() -> None:
    stored = Stored([(at, "near") for at in range(1, 20)])
    timers = Timers(stored.load, limit=5)
    timers.refill()
    stored.rows.append((50, "far"))
    assert not timers.add(50, "far")
    assert timers.pop_due(50)[-1] == "far"


def test_timers_of_one_instant_are_not_split() -> None:
    stored = Stored([(7, f"t{number}") for number in range(30)])
    timers = Timers(stored.load, limit=5)
    timers.refill()
    assert len(timers.pop_due(7)) == 30


def test_gives_the_far_part_back_when_too_many_are_added() -> None:
    stored = Stored([])
    timers = Timers(stored.load, limit=5)
    timers.refill()
    for at in range(1, 101):
        stored.rows.append((at, f"t{at}"))
        timers.add(at, f"t{at}")
    assert len(timers._stored) <= 21
    assert timers.pop_due(100) == [f"t{at}" for at in range(1, 101)]


def test_many_timers_of_one_instant_are_sorted_seldom() -> None:
    stored = Stored([])
    timers = Timers(stored.load, limit=5)
    timers.refill()
    sorted_at = []
    for number in range(1_000):
        before = timers._trim_above
        stored.rows.append((7, f"t{number}"))
        timers.add(7, f"t{number}")
        if timers._trim_above != before:
            sorted_at.append(number)
    assert len(sorted_at) <= 7
    assert len(timers.pop_due(7)) == 1_000


def test_a_retry_is_due_among_the_timers() -> None:
    timers = Timers(Stored([(10, "a"), (30, "c")]).load)
    timers.refill()
    timers.add_retry(20, 7)
    assert timers.pop_due(30) == ["a", 7, "c"]
