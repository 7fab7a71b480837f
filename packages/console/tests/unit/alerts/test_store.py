"""Keys of rows of alerts."""

from durable_retry_console.alerts import store


def test_a_key_holds_no_character_that_tables_refuse_or_that_ends_a_list() -> None:
    assert store._key_of("a/b#c?d~e=f\n") == "a!2Fb!23c!3Fd!7Ee=f!0A"
