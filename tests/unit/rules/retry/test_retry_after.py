from email.utils import format_datetime
from typing import Any

import pytest

from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.names import Category
from durable_retry.rules.retry.retry_after import (
    MAX_HINT_SECONDS,
    RetryHint,
    hint_from_handler,
    parse_http_date,
    parse_retry_after,
    parse_used_up,
)
from tests.support.builders import NOON, after
from tests.support.narrowing import existing

EPOCH = int(NOON.timestamp())


def hint_of(status_code: int = 429, **headers: str) -> RetryHint | None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return parse_retry_after(named, status_code=status_code, now=NOON)


def seconds_of(status_code: int = 429, **headers: str) -> float | None:
    hint = hint_of(status_code, **headers)
    return None if hint is None or not hint.is_usable else hint.delay_seconds


def test_no_header_asks_for_nothing() -> None:
    assert hint_of(Content_Type="text/plain") is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), (" 0 ", 0), ("1.5", 1.5), ("+2", 2), ('"30"', 30), ('"3", "30"', 30)],
)
def test_seconds(text: str, seconds: float) -> None:
    assert hint_of(Retry_After=text) == RetryHint(seconds, "Retry-After")


@pytest.mark.parametrize(
    "text",
    [
        "Sat, 21 Nov 2026 12:00:30 GMT",
        "Saturday, 21-Nov-26 12:00:30 GMT",
        "Sat Nov 21 12:00:30 2026",
        "Sat, 21 Nov 2026 12:00:30 UTC",
        "Sat, 21 Nov 2026 12:00:30 gmt",
        "Sat, 21 Nov 2026 12:00:30 Z",
        '"Sat, 21 Nov 2026 12:00:30 GMT"',
    ],
)
def test_a_date_counts_from_now(text: str) -> None:
    assert seconds_of(Retry_After=text) == 30


def test_a_date_counts_from_the_responses_own_date() -> None:
    until = "Sat, 21 Nov 2026 15:00:30 GMT"
    assert seconds_of(Retry_After=until, Date="Sat, 21 Nov 2026 15:00:00 GMT") == 30
    assert seconds_of(Retry_After=until, Date="yesterday") == 10_830


@pytest.mark.parametrize("field", ["Retry-After", "X-RateLimit-Reset", "X-RateLimit-Reset-Tokens"])
@pytest.mark.parametrize("hours", [-5, 0, 5])
@pytest.mark.parametrize("form", ["{http}", "{rfc}", "{epoch}", "{epoch}000", '"{epoch}"', '"{http}"'])
def test_an_instant_counts_from_the_responses_own_date(form: str, hours: int, field: str) -> None:
    answered_at, until = after(hours * 3_600), after(hours * 3_600 + 4)
    text = form.format(
        http=format_datetime(until, usegmt=True), rfc=to_rfc3339(until), epoch=int(until.timestamp())
    )
    assert seconds_of(429, **{field: text, "Date": format_datetime(answered_at, usegmt=True)}) == 4


def test_a_date_in_the_past_counts_as_none_and_is_noted() -> None:
    hint = hint_of(Retry_After="Sat, 21 Nov 2026 11:59:00 GMT")
    assert hint == RetryHint(0, "Retry-After", ("Retry-After lies 60 s in the past and counts as 0 s",))


@pytest.mark.parametrize(
    "text",
    ["Sat, 31 Feb 2026 12:00:30 GMT", "Sat, 21 Nox 2026 12:00:30 GMT", "Sat, 21 Nov 2026 12:00:30 CET"],
)
def test_what_is_no_date_is_none(text: str) -> None:
    assert parse_http_date(text) is None


def test_a_leap_second_is_the_second_before() -> None:
    assert parse_http_date("Sat, 21 Nov 2026 12:00:60 GMT") == after(59)


def test_a_date_in_another_zone_is_the_same_instant() -> None:
    assert parse_http_date("Sat, 21 Nov 2026 13:00:30 +0100") == after(30)


def test_a_negative_number_counts_as_none() -> None:
    hint = existing(hint_of(Retry_After="-5"))
    assert (hint.delay_seconds, len(hint.notes)) == (0, 1)


@pytest.mark.parametrize("text", ["9" * 9, "9" * 400])
def test_an_absurd_number_is_cut_and_noted(text: str) -> None:
    hint = existing(hint_of(Retry_After=text))
    assert hint.delay_seconds == MAX_HINT_SECONDS
    assert "more than a year" in hint.notes[0]


@pytest.mark.parametrize("text", ["soon", "", "1e3", "٣", "30 s", "\x00", "nan", "inf"])
def test_garbage_is_ignored_and_noted(text: str) -> None:
    hint = existing(hint_of(503, Retry_After=text))
    assert not hint.is_usable
    assert hint.notes[0].startswith("Retry-After ignored: ")


def test_milliseconds_are_finer_than_seconds() -> None:
    assert hint_of(retry_after_ms="1500", Retry_After="2") == RetryHint(1.5, "retry-after-ms")
    assert hint_of(X_MS_Retry_After_Ms="250") == RetryHint(0.25, "x-ms-retry-after-ms")
    assert hint_of(X_Amz_Retry_After="1500", Retry_After="2") == RetryHint(1.5, "x-amz-retry-after")


def test_what_was_ignored_on_the_way_is_noted_with_what_was_found() -> None:
    hint = hint_of(retry_after_ms="?", Retry_After="2")
    assert hint == RetryHint(2, "Retry-After", ("retry-after-ms ignored: '?' cannot be read",))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ('"p";r=0;t=30', 30),
        ('"p";r=5;t=30', None),
        ('"p";r=5;t=30, "day";r=0;t=400', 400),
        ('"p";r=0;t=30, "day";r=5;t=400', 30),
        ('"p";r=0;t=30, "day";r=0;t=400', 400),
        ('"day";r=0;t=400, "p";r=0;t=30', 400),
        ('"a;r=9";t=7;r=0', 7),
        ("limit=100, remaining=0, reset=50", 50),
        ("limit=100, remaining=1, reset=50", None),
        ('"p";r=0', None),
    ],
)
def test_rate_limit_fields(text: str, seconds: float | None) -> None:
    assert seconds_of(RateLimit=text) == seconds


def test_the_window_of_the_policy_stands_in_for_the_time() -> None:
    policies = '"other";q=1;w=5, "p";q=100;w=60'
    assert seconds_of(RateLimit='"p";r=0', RateLimit_Policy=policies) == 60
    assert seconds_of(RateLimit='"q";r=0', RateLimit_Policy=policies) is None


def test_an_unreadable_rate_limit_is_noted() -> None:
    hint = hint_of(RateLimit="lots")
    assert hint == RetryHint(0, "", ("RateLimit ignored: 'lots' cannot be read",))


@pytest.mark.parametrize("name", ["RateLimit", "X_RateLimit"])
@pytest.mark.parametrize(("text", "seconds"), [("30", 30), (f"{EPOCH + 30}", 30), (f"{EPOCH + 30}000", 30)])
def test_a_reset_is_seconds_or_an_instant(name: str, text: str, seconds: float) -> None:
    headers = {f"{name}_Reset": text, f"{name}_Remaining": "0"}
    assert seconds_of(503, **headers) == seconds


def test_a_reset_counts_only_when_nothing_remains() -> None:
    assert seconds_of(429, X_RateLimit_Reset="30") == 30
    assert seconds_of(503, X_RateLimit_Reset="30") is None
    assert seconds_of(429, X_RateLimit_Reset="30", X_RateLimit_Remaining="1") is None
    assert seconds_of(429, X_RateLimit_Remaining="0") is None


@pytest.mark.parametrize(
    "headers",
    [
        {"X-RateLimit-Remaining": "-1", "X-RateLimit-Reset": "45"},
        {"X-RateLimit-Limit": "0", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "45"},
        {"RateLimit": '"p";r=-1;t=45'},
        {"RateLimit": '"p";r=0;t=45', "RateLimit-Policy": '"p";q=0;w=60'},
        {"RateLimit": "limit=0, remaining=0, reset=45"},
    ],
)
def test_no_limit_is_never_used_up_until_it_throttles(headers: dict[str, str]) -> None:
    assert parse_used_up(headers, now=NOON) is None
    assert parse_retry_after(headers, status_code=503, now=NOON) is None
    assert seconds_of(429, **headers) == 45


def test_what_classify_calls_throttled_needs_no_rest_either() -> None:
    headers = {"X-RateLimit-Reset": "45"}
    hint = parse_retry_after(headers, status_code=420, now=NOON, ruled=Category.THROTTLED)
    assert hint == RetryHint(45, "X-RateLimit-Reset")


RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"


@pytest.mark.parametrize(
    ("document", "seconds"),
    [
        ({"error": {"details": [{"@type": RETRY_INFO, "retryDelay": "3.5s"}]}}, 3.5),
        ({"code": 8, "details": [{"@type": RETRY_INFO, "retryDelay": "34.074824224s"}]}, 34.074824224),
        ({"error": {"details": [1, {"@type": "x"}, {"@type": RETRY_INFO, "retryDelay": "2s"}]}}, 2),
        ([{"error": {"details": [{"@type": RETRY_INFO, "retryDelay": "2s"}]}}], 2),
        ({"error": {"details": [{"@type": RETRY_INFO}]}}, None),
        ({"error": {"details": {"@type": RETRY_INFO}}}, None),
        ({"error": "quota"}, None),
        ([RETRY_INFO], None),
        (None, None),
    ],
)
def test_googles_retry_info_is_read_where_no_header_says_more(document: Any, seconds: float | None) -> None:
    def read(headers: dict[str, str]) -> RetryHint | None:
        return parse_retry_after(headers, status_code=429, now=NOON, document=lambda: document)

    assert read({}) == (None if seconds is None else RetryHint(seconds, "RetryInfo"))
    assert read({"Retry-After": "7"}) == RetryHint(7)


@pytest.mark.parametrize("delay", ["-2s", "soon", 4, {"seconds": 4}, None])
def test_a_retry_info_that_cannot_be_read_is_noted(delay: Any) -> None:
    document = {"error": {"details": [{"@type": RETRY_INFO, "retryDelay": delay}]}}
    hint = parse_retry_after({}, status_code=429, now=NOON, document=lambda: document)
    assert hint == RetryHint(0, "", (f"RetryInfo ignored: {str(delay)!r} cannot be read",))


def test_few_of_many_values_that_cannot_be_read_are_noted() -> None:
    hint = existing(parse_retry_after({"Retry-After": "x," * 10_000 + "4"}, status_code=429, now=NOON))
    assert (hint.delay_seconds, len(hint.notes)) == (4, 5)


def test_discords_reset_after_counts_with_nothing_left() -> None:
    headers = {"X-RateLimit-Limit": "5", "X-RateLimit-Reset-After": "64.57"}
    assert seconds_of(403, X_RateLimit_Remaining="0", **headers) == 64.57
    assert seconds_of(403, X_RateLimit_Remaining="1", **headers) is None


def test_a_handlers_wish_is_a_hint_too() -> None:
    assert hint_from_handler(3) == RetryHint(3, "retry_after")
    assert hint_from_handler(float("nan")).delay_seconds == 0
    assert hint_from_handler(float("inf")).delay_seconds == MAX_HINT_SECONDS
    assert hint_from_handler(-1).delay_seconds == 0


def test_json_round_trips() -> None:
    hint = RetryHint(3, "x", ("a", "b"))
    assert RetryHint.from_json(hint.to_json()) == hint


def test_a_rate_limit_that_was_read_leaves_no_note() -> None:
    assert hint_of(RateLimit='"p";r=0;t=30') == RetryHint(30, "RateLimit")


def test_no_wait_is_longer_than_a_year() -> None:
    assert MAX_HINT_SECONDS == 365 * 86_400


@pytest.mark.parametrize(("text", "seconds"), [("999999999", MAX_HINT_SECONDS), ("1000000000", 0)])
def test_numbers_of_ten_digits_are_instants(text: str, seconds: float) -> None:
    assert seconds_of(429, RateLimit_Reset=text) == seconds


@pytest.mark.parametrize(("text", "seconds"), [("99999999999", MAX_HINT_SECONDS), ("100000000000", 0)])
def test_numbers_of_twelve_digits_are_instants_in_milliseconds(text: str, seconds: float) -> None:
    assert seconds_of(429, RateLimit_Reset=text) == seconds


def test_a_wait_of_a_whole_year_is_not_cut() -> None:
    assert hint_of(Retry_After="31536000") == RetryHint(MAX_HINT_SECONDS)


def test_a_note_shows_no_control_character() -> None:
    assert existing(hint_of(Retry_After="\x1b[31m")).notes[0].isprintable()


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"RateLimit": '"p";r=0;t=30'}, 30),
        ({"RateLimit": '"p";r=0', "RateLimit-Policy": '"p";q=10;w=60'}, 60),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "45"}, 45),
        ({"RateLimit": '"p";r=1;t=30'}, None),
        ({"X-RateLimit-Reset": "45"}, None),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "-3"}, None),
        ({"RateLimit": "lots"}, None),
        ({"Retry-After": "5"}, None),
        ({}, None),
    ],
)
def test_a_success_says_when_nothing_is_left(headers: dict[str, str], seconds: float | None) -> None:
    hint = parse_used_up(headers, now=NOON)
    assert (None if hint is None else hint.delay_seconds) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (str(EPOCH + 30), 30),
        (f"{EPOCH + 30}000", 30),
        ("2026-11-21T12:00:30Z", 30),
        ("2026-11-21T13:00:30+01:00", 30),
        ("6m0s", 360),
        ("1s", 1),
        ("250ms", 0.25),
        ("1d2h3m4.5s", 93_784.5),
        ("3, 30", 30),
        ("30,3", 30),
        ("soon, 30", 30),
        ("3, Sat, 21 Nov 2026 12:00:30 GMT", 30),
        ("Sat, 21 Nov 2026 12:00:30 GMT, Saturday, 21-Nov-26 12:00:20 GMT, 1", 30),
    ],
)
@pytest.mark.parametrize("field", ["Retry-After", "X-RateLimit-Reset", "X-RateLimit-Reset-Tokens"])
def test_the_longest_readable_wait_counts_in_each_form(field: str, text: str, seconds: float) -> None:
    assert seconds_of(429, **{field: text}) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "tomorrow", "10x", "2026-11-21T12:00:30", "9999-12-31T23:59:59-14:00"])
def test_what_is_not_understood_leaves_a_note(text: str) -> None:
    hint = hint_of(Retry_After=text)
    assert hint == RetryHint(0.0, "", (f"Retry-After ignored: {text!r} cannot be read",))
    both = hint_of(Retry_After=f"{text}, 5")
    assert both == RetryHint(5.0, "Retry-After", (f"Retry-After ignored: {text!r} cannot be read",))


@pytest.mark.parametrize(
    ("remaining", "reset"),
    [
        ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
        ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
        ("x-rate-limit-remaining", "x-rate-limit-reset"),
        ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    ],
)
def test_vendors_fields_count_with_nothing_left(remaining: str, reset: str) -> None:
    assert seconds_of(403, **{remaining: "0", reset: "30"}) == 30
    assert seconds_of(403, **{remaining: "1", reset: "30"}) is None
    assert existing(parse_used_up({remaining: "0", reset: "30"}, now=NOON)).delay_seconds == 30


def test_of_several_limits_the_longest_wait_counts() -> None:
    requests = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1s"}
    tokens = {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}
    assert hint_of(403, **requests, **tokens) == RetryHint(360.0, "X-RateLimit-Reset-Tokens")


def test_a_rest_that_cannot_be_read_leaves_a_note() -> None:
    hint = hint_of(403, X_RateLimit_Remaining="none", X_RateLimit_Reset="30")
    assert hint == RetryHint(0.0, "", ("x-ratelimit-remaining ignored: 'none' cannot be read",))
