from bench.outbox import sent_rows


def test_every_event_that_was_sent_has_a_row_of_its_own_in_one_partition() -> None:
    rows = [*sent_rows(0, 150), *sent_rows(150, 300)]
    assert {row["PartitionKey"] for row in rows} == {"sent"}
    assert len({row["RowKey"] for row in rows}) == 300


def test_an_older_event_comes_behind_a_newer_one() -> None:
    keys = [row["RowKey"] for row in sent_rows(0, 50)]
    assert keys == sorted(keys)
