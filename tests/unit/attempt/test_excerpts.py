import json
from base64 import b64decode, b64encode
from typing import Any

import pytest

from durable_retry.attempt.excerpts import (
    credentials_of,
    error_line,
    kept_result,
    refusal_texts,
)
from durable_retry.attempt.http_client import BoundedResponse
from durable_retry.base.text import Secret
from durable_retry.rules.config.dependency import Auth, Dependency

WITH_SECRETS = Dependency(
    name="payments",
    base_url="https://payments.example.com",
    headers={"X-Static": "not secret", "X-Signed": Secret("signed-value")},
    auth=Auth("Authorization", Secret("Bearer sesame-open")),
)


def test_secrets_are_taken_out_wherever_they_stand() -> None:
    text = "sent Bearer sesame-open, then sesame-open alone, and signed-value; not secret stays"
    assert credentials_of(WITH_SECRETS).masked(text) == "sent ***, then *** alone, and ***; not secret stays"


def test_an_error_is_one_line_with_its_name_and_no_secret() -> None:
    line = error_line(ValueError("bad\n  value sesame-open"), WITH_SECRETS)
    assert line == "ValueError: bad value ***"


def test_the_body_of_a_refusal_is_kept_where_its_line_says_less_and_without_secrets() -> None:
    assert refusal_texts("no such order", WITH_SECRETS)[1] is None
    assert refusal_texts("", WITH_SECRETS)[1] is None
    assert refusal_texts("<p>\n  sesame-open\n</p>\n", WITH_SECRETS)[1] == "<p>\n  ***\n</p>"
    assert len(refusal_texts("x" * 10_000, WITH_SECRETS)[1] or "") == 4_000


def test_an_error_without_words_is_its_name() -> None:
    assert error_line(TimeoutError(), WITH_SECRETS) == "TimeoutError"


def test_a_long_error_is_cut() -> None:
    assert len(error_line(ValueError("x" * 1_000), WITH_SECRETS)) == 300


def test_a_short_value_is_not_taken_for_a_secret() -> None:
    weak = Dependency(name="weak", base_url="http://x", auth=Auth("X-Key", Secret("a")))
    assert credentials_of(weak).masked("a banana") == "a banana"


PAYMENTS = Dependency(
    name="payments", base_url="https://x.example.com", auth=Auth("X-Api-Key", Secret("sesame-open"))
)
LIMIT = 100


def answer(body: bytes, content_type: str = "application/json", **changes: Any) -> BoundedResponse:
    values: dict[str, Any] = {
        "status_code": 200,
        "headers": {"content-type": content_type},
        "body": body,
        "is_cut": False,
    }
    return BoundedResponse(**(values | changes))


@pytest.mark.parametrize("content_type", ["application/json", "application/problem+json; charset=utf-8"])
def test_json_is_kept_as_json(content_type: str) -> None:
    assert kept_result(answer(b'{"a": 1}', content_type), PAYMENTS, LIMIT)["json"] == {"a": 1}


def test_an_answer_of_the_deepest_json_is_kept_as_json() -> None:
    assert "json" in kept_result(answer(b"[" * 48 + b"]" * 48), PAYMENTS, LIMIT)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"hello", "text/plain"),
        (b"{", "application/json"),
        (b"NaN", "application/json"),
        (b'"\\ud800"', "application/json"),
        (b"[" * 90, "application/json"),
        (b"[" * 49 + b"]" * 49, "application/json"),
    ],
)
def test_what_is_not_json_that_can_be_passed_on_is_kept_as_text(body: bytes, content_type: str) -> None:
    result = kept_result(answer(body, content_type), PAYMENTS, LIMIT)
    assert result["body"] == body.decode()
    assert "json" not in result


def test_an_empty_body_is_left_out() -> None:
    assert kept_result(answer(b""), PAYMENTS, LIMIT).keys() == {"status_code", "headers"}


def test_a_body_over_the_limit_is_cut_and_says_so() -> None:
    result = kept_result(answer(b'"' + b"x" * 200 + b'"'), PAYMENTS, LIMIT)
    assert len(result["body"]) == LIMIT
    assert result["truncated"]


def test_the_parts_that_a_saga_wants_are_taken_before_the_cut() -> None:
    body = json.dumps({"note": "x" * 200, "id": "r-1", "key": {"a": "sesame-open"}}).encode()
    pointers = ["/json/id", "/status_code", "/json/nothing", "/json/key/a", "/json/key", "/json", ""]
    result = kept_result(answer(body), PAYMENTS, LIMIT, pointers)
    assert (len(result["body"]), result["truncated"]) == (LIMIT, True)
    assert result["values"] == {"/json/id": "r-1", "/status_code": 200}


def test_an_answer_that_is_not_cut_has_its_parts_in_their_places() -> None:
    assert "values" not in kept_result(answer(b'{"id": 7}'), PAYMENTS, LIMIT, ["/json/id"])


def test_a_body_that_was_cut_in_reading_says_so_too() -> None:
    assert kept_result(answer(b"{}", is_cut=True), PAYMENTS, LIMIT, ["/json"])["truncated"]


def test_cookies_are_not_kept_and_secrets_are_masked() -> None:
    headers = {"content-type": "text/plain", "set-cookie": "a=b", "etag": "sesame-open"}
    result = kept_result(answer(b"sesame-open", headers=headers), PAYMENTS, LIMIT)
    assert result["headers"] == {"content-type": "text/plain", "etag": "***"}
    assert result["body"] == "***"
    assert result["masked"] == ["/body", "/headers/etag"]


def test_a_long_header_is_cut_and_a_url_in_one_stays_whole() -> None:
    url = f"https://management.example.com/operations/7?t={'x' * 4_000}"
    headers = {"etag": "e" * 2_000, "azure-asyncoperation": url}
    kept = kept_result(answer(b"", headers=headers), PAYMENTS, LIMIT)["headers"]
    assert (len(kept["etag"]), kept["azure-asyncoperation"]) == (1_024, url)


@pytest.mark.shows("D13")
def test_bytes_that_are_no_text_are_kept_as_bytes_with_a_note() -> None:
    result = kept_result(answer(b'{"a": "\xff"}'), PAYMENTS, LIMIT)
    assert result["body"] == f"data:application/octet-stream;base64,{b64encode(b'{"a": "\xff"}').decode()}"
    assert "no text" in result["note"]
    assert not {"json", "truncated"} & result.keys()


def test_bytes_that_are_no_text_are_cut_and_masked_too() -> None:
    result = kept_result(answer(b"\xffsesame-open" + b"x" * 200), PAYMENTS, LIMIT)
    assert result["truncated"]
    assert b64decode(result["body"].partition(",")[2]).startswith(b"\xff***x")
    assert len(result["body"].partition(",")[2]) <= LIMIT


@pytest.mark.parametrize(
    ("body", "charset"), [("é".encode("latin-1"), "latin-1"), (b"\xef\xbb\xbf\xc3\xa9", "utf-8")]
)
def test_json_is_read_in_its_charset_and_behind_a_byte_order_mark(body: bytes, charset: str) -> None:
    text = body[:3] + b'"' + body[3:] + b'"' if body.startswith(b"\xef") else b'"' + body + b'"'
    result = kept_result(answer(text, f"application/json; charset={charset}"), PAYMENTS, LIMIT)
    assert result["json"] == "é"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            '{"title": "Bad Request", "detail": "amount is\\n missing", "requestId": "7f"}',
            "amount is missing",
        ),
        ('{"title": "Bad Request", "detail": ""}', "Bad Request"),
        (
            '{"error": {"code": "card_declined", "message": "Your card was declined."}}',
            "Your card was declined.",
        ),
        ('{"error": "invalid_grant", "error_description": "the token expired"}', "the token expired"),
        ('{"error": "nope"}', "nope"),
        ('{"detail": [{"loc": ["amount"]}]}', '{"detail": [{"loc": ["amount"]}]}'),
        ('{"detail": "cut o', '{"detail": "cut o'),
        ("upstream connect error", "upstream connect error"),
    ],
)
def test_a_refusal_in_json_is_described_by_its_message(body: str, told: str) -> None:
    assert refusal_texts(body, PAYMENTS)[0] == told


def test_what_a_message_leaves_out_of_a_refusal_is_kept_beside_it() -> None:
    body = '{"detail": "amount is missing", "requestId": "7f"}'
    assert refusal_texts(body, PAYMENTS) == ("amount is missing", body)


def test_a_refusal_is_described_in_one_short_line() -> None:
    assert refusal_texts("no\n  money " + "x" * 500, PAYMENTS)[0].startswith("no money xxx")
    assert len(refusal_texts("x" * 500, PAYMENTS)[0]) == 200


@pytest.mark.parametrize(
    "written",
    ['"sesame-open"', '"sesame\\u002dopen"', '"sesame%2Dopen"', '"{\\"a\\": \\"sesame\\\\u002dopen\\"}"'],
)
def test_a_credential_in_json_is_masked_in_any_form_and_its_place_is_named(written: str) -> None:
    result = kept_result(answer(f'{{"id": 7, "echo": [{written}]}}'.encode()), PAYMENTS, 1_000)
    assert "sesame" not in json.dumps(result)
    assert (result["json"]["id"], result["masked"]) == (7, ["/json/echo/0"])


def test_a_long_list_of_places_is_the_whole_result() -> None:
    result = kept_result(answer(json.dumps(["sesame-open"] * 21).encode()), PAYMENTS, 1_000)
    assert result["masked"] == [""]
    long = kept_result(answer(json.dumps({"x" * 300: "sesame-open"}).encode()), PAYMENTS, 1_000)
    assert long["masked"] == [""]


@pytest.mark.parametrize("begin", range(85, 101))
def test_a_credential_on_the_limit_is_masked_before_the_cut(begin: int) -> None:
    body = b"-" * begin + b"sesame-open" + b"-" * 200
    result = kept_result(answer(body, "text/plain"), PAYMENTS, LIMIT)
    assert "ses" not in result["body"]
    assert len(result["body"]) == LIMIT


def test_what_is_left_of_a_credential_that_the_reading_cut_is_masked() -> None:
    result = kept_result(answer(b"got sesame-o", "text/plain", is_cut=True), PAYMENTS, LIMIT)
    assert result["body"] == "got ***"


def test_a_refusal_is_masked_before_it_is_cut() -> None:
    for begin in (190, 1_015, 3_990, 7_990):
        body = "-" * begin + "sesame-open"
        assert "ses" not in refusal_texts(body, PAYMENTS)[0]
        assert "ses" not in (refusal_texts(body[:8_000], PAYMENTS)[1] or "")
    assert refusal_texts('{"detail": "sent sesame\\u002dopen"}', PAYMENTS)[0] == "sent ***"


def test_the_lines_of_headers_are_masked_before_they_become_one_line() -> None:
    assert refusal_texts("X-Other-Key: abc def\nCookie: a=b; c=d\nfailed", PAYMENTS)[0].endswith(
        "Cookie: *** failed"
    )
