from examples.flaky_target.ledger import TRIES_KEPT_PER_KEY, Ledger, Try


def arrive(ledger: Ledger, key: str, path: str = "/fail/2") -> Try:
    return ledger.arrive(key, method="POST", path=path, query="", headers={"a": "b"})


def test_the_first_try_is_number_one_and_numbers_count_per_path() -> None:
    ledger = Ledger()
    numbers = [
        arrive(ledger, "k").number,
        arrive(ledger, "k").number,
        arrive(ledger, "k", "/echo").number,
        arrive(ledger, "other").number,
    ]
    assert numbers == [1, 2, 1, 1]


def test_without_a_key_the_query_distinguishes_requests() -> None:
    ledger = Ledger()
    queries = ["case=1", "case=2", "case=1"]
    tries = [ledger.arrive("", method="GET", path="/fail/1", query=query, headers={}) for query in queries]
    assert [one.number for one in tries] == [1, 1, 2]


def test_totals_count_every_request_per_key() -> None:
    ledger = Ledger()
    for key in ("a", "a", "b"):
        arrive(ledger, key)
    assert ledger.totals() == {"total": 3, "keys": {"a": 2, "b": 1}}


def test_the_count_stays_exact_when_old_tries_are_dropped() -> None:
    ledger = Ledger()
    for _ in range(TRIES_KEPT_PER_KEY + 5):
        arrive(ledger, "k")
    record = ledger.of("k")
    assert record.count == TRIES_KEPT_PER_KEY + 5
    assert [one.number for one in record.tries] == list(range(6, TRIES_KEPT_PER_KEY + 6))


def test_most_in_flight_remembers_overlapping_tries() -> None:
    ledger = Ledger()
    arrive(ledger, "k")
    arrive(ledger, "k")
    ledger.leave("k")
    ledger.leave("k")
    arrive(ledger, "k")
    assert (ledger.of("k").in_flight, ledger.of("k").most_in_flight) == (1, 2)


def test_leaving_after_the_counts_were_cleared_does_not_count_below_zero() -> None:
    ledger = Ledger()
    arrive(ledger, "k")
    ledger.clear()
    ledger.leave("k")
    assert ledger.of("k").as_json() == {"count": 0, "in_flight": 0, "most_in_flight": 0, "tries": []}
