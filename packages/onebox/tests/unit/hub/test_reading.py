from dataclasses import replace

from onebox.hub.model import Head, Status
from onebox.hub.reading import HistoryCache, Live


def live(name: str, size: int = 1_000) -> Live:
    head = Head(name, "e", 1, "n", None, Status.RUNNING, None, None, None)
    return Live(head, [b"x" * size], 0)


def test_the_least_used_gives_way() -> None:
    cache = HistoryCache(limit_bytes=4_000)
    cache.put(live("a"))
    cache.put(live("b"))
    assert cache.get("a") is not None
    cache.put(live("c"))
    assert cache.get("b") is None
    assert cache.get("a") is not None


def test_a_turn_lengthens_the_history_and_counts() -> None:
    cache = HistoryCache(limit_bytes=10_000)
    entry = live("a")
    cache.put(entry)
    cache.advance(entry, replace(entry.head, turn=2), b"y" * 500)
    kept = cache.get("a")
    assert kept is not None
    assert kept.head.turn == 2
    assert len(b"".join(kept.chunks)) == 1_500
    cache.drop("a")
    assert cache._bytes == 0


def test_the_input_counts_beside_the_history() -> None:
    cache = HistoryCache(limit_bytes=4_000)
    entry = live("a")
    entry.head = replace(entry.head, input="z" * 2_000)
    cache.put(entry)
    assert cache.get("a") is entry
    cache.put(live("b"))
    assert cache.get("a") is None
    assert cache.get("b") is not None
    cache.drop("b")
    assert cache._bytes == 0


def test_a_cache_of_nothing_keeps_nothing() -> None:
    cache = HistoryCache(limit_bytes=0)
    cache.put(live("a"))
    assert cache.get("a") is None


def test_a_turn_of_an_instance_that_was_dropped_does_not_count() -> None:
    cache = HistoryCache(limit_bytes=10_000)
    entry = live("a")
    cache.put(entry)
    cache.drop("a")
    cache.advance(entry, entry.head, b"y")
    assert cache._bytes == 0


def test_histories_that_grow_give_way_as_well() -> None:
    cache = HistoryCache(limit_bytes=4_000)
    old, growing = live("old"), live("growing")
    cache.put(old)
    cache.put(growing)
    cache.advance(growing, growing.head, b"y" * 1_000)
    assert cache.get("old") is None
    assert cache.get("growing") is growing
