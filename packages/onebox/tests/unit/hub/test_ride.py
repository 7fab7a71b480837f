from onebox.hub.ride import Ride


class Seconds:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_without_clients_none_is_expected_after_some_groups() -> None:
    ride = Ride(4, seconds := Seconds())
    expected = []
    for _ in range(10):
        ride.note_filled()
        expected.append(ride.is_likely)
        seconds.now += 5
    assert expected == [*6 * [True], *4 * [False]]


def test_groups_that_meet_a_client_again_have_one_expected() -> None:
    ride = Ride(4, seconds := Seconds())
    for _ in range(100):
        ride.note_filled()
        seconds.now += 5
    ride.note_client()
    assert not ride.is_likely
    for _ in range(6):
        ride.note_filled()
        seconds.now += 3
        ride.note_client()
    assert ride.is_likely


def test_a_client_counts_for_the_oldest_group_that_has_met_none() -> None:
    ride = Ride(4, seconds := Seconds())
    for _ in range(10):
        ride.note_filled()
        seconds.now += 3
        ride.note_filled()
        seconds.now += 3
        ride.note_client()
    assert not ride.is_likely


def test_clients_alone_change_nothing() -> None:
    ride = Ride(4, seconds := Seconds())
    for _ in range(100):
        seconds.now += 100
        ride.note_client()
    assert ride.is_likely
