from durable_retry.engine.base.text import Secret
from durable_retry.engine.dependency import Auth, Dependency
from durable_retry.services.attempt.plan import error_line, masked

PAYMENTS = Dependency(
    name="payments",
    base_url="https://payments.example.com",
    headers={"X-Static": "not secret", "X-Signed": Secret("signed-value")},
    auth=Auth("Authorization", Secret("Bearer sesame-open")),
)


def test_secrets_are_taken_out_wherever_they_stand() -> None:
    text = "sent Bearer sesame-open, then sesame-open alone, and signed-value; not secret stays"
    assert masked(text, PAYMENTS) == "sent ***, then *** alone, and ***; not secret stays"


def test_an_error_is_one_line_with_its_name_and_no_secret() -> None:
    line = error_line(ValueError("bad\n  value sesame-open"), PAYMENTS)
    assert line == "ValueError: bad value ***"


def test_an_error_without_words_is_its_name() -> None:
    assert error_line(TimeoutError(), PAYMENTS) == "TimeoutError"


def test_a_long_error_is_cut() -> None:
    assert len(error_line(ValueError("x" * 1_000), PAYMENTS)) == 300


def test_a_short_value_is_not_taken_for_a_secret() -> None:
    weak = Dependency(name="weak", base_url="http://x", auth=Auth("X-Key", Secret("a")))
    assert masked("a banana", weak) == "a banana"
