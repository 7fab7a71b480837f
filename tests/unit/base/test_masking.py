import json
from typing import Any

import pytest

from durable_retry.base.masking import MASKED, Masking, Show
from durable_retry.base.validation import InvalidInputError, Problem
from tests.support.narrowing import of_type

CARD = {"number": "4242", "cvc": "123", "holder": "A"}
CALL = {
    "method": "POST",
    "path": "/charges",
    "query": {"page": "1", "access_token": "t"},
    "headers": {"Accept": "text/plain", "X-Secret": "s"},
    "json": {"amount": 5, "card": CARD},
}


@pytest.mark.parametrize(
    "name", ["password", "PassWord", "db_password", "clientSecret", "refresh-token", "API_KEY", "pin", "cvv"]
)
def test_well_known_names_are_masked_however_they_are_written(name: str) -> None:
    assert MASKED.shown({"input": [{name: "x"}]}) == {"input": [{name: "***"}]}


@pytest.mark.parametrize("name", ["max_tokens", "pinned", "passwords_changed", "secretary", "amount"])
def test_names_that_only_look_alike_are_not(name: str) -> None:
    assert MASKED.shown({"input": {name: "x"}}) == {"input": {name: "x"}}


def test_names_hold_in_every_part_of_a_request_and_for_whole_objects() -> None:
    shown = MASKED.shown({"request": {**CALL, "json": {"credentials": {"a": 1}, "token": None}}})["request"]
    assert shown["query"] == {"page": "1", "access_token": "***"}
    assert shown["headers"] == {"Accept": "text/plain", "X-Secret": "***"}
    assert shown["json"] == {"credentials": "***", "token": None}


def test_a_dependencys_own_names_and_places_are_masked_too() -> None:
    rules = Masking(fields=("*_holder", "I.B.A.N"), pointers=("/request/json/cards/*/number", "/input/a~1b"))
    request = {"json": {"iban": "DE02", "card_holder": "A", "cards": [{"number": "1", "kind": "x"}]}}
    assert rules.shown({"request": request, "input": {"a/b": 1, "number": 2}}) == {
        "request": {"json": {"iban": "***", "card_holder": "***", "cards": [{"number": "***", "kind": "x"}]}},
        "input": {"a/b": "***", "number": 2},
    }


def test_a_place_in_an_events_data_is_the_same_in_its_dead_letter() -> None:
    rules = Masking(pointers=("/data/name",))
    assert rules.shown({"data": {"name": "A"}}) == {"data": {"name": "***"}}
    event = {"event": {"data": {"name": "A"}}, "queue": "q"}
    assert rules.shown({"request": event})["request"] == {"event": {"data": {"name": "***"}}, "queue": "q"}


def test_nothing_is_shown_but_the_form_of_a_request() -> None:
    rules = Masking(show=Show.NONE)
    assert rules.shown({"request": CALL, "input": {"a": 1}, "message": "m", "handler": "ship"}) == {
        "request": {
            "method": "POST",
            "path": "***",
            "query": {"page": "***", "access_token": "***"},
            "headers": {"Accept": "***", "X-Secret": "***"},
            "json": "***",
        },
        "input": "***",
        "message": "***",
        "handler": "ship",
    }
    assert (rules.value({"a": 1}), rules.value(None)) == ("***", None)


def test_all_is_shown_where_the_file_says_so() -> None:
    rules = Masking(show=Show.ALL)
    assert rules.shown({"request": CALL}) == {"request": CALL}
    assert rules.text("token=abc") == "token=abc"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"password": "a", "n": 1}', '{"password": "***", "n": 1}'),
        ('{"credentials": {"a": "b"}}', '{"credentials": "***"}'),
        ('[{"token": "a"}]', '[{"token": "***"}]'),
        ('{"n":  1}', '{"n":  1}'),
        ('"password"', '"password"'),
        ('{"password": "a\\"b", broken', '{"password": "***", broken'),
        ('{"password": "cut of', '{"password": "***"'),
        ('{"pin": 1234, "n": 2', '{"pin": "***", "n": 2'),
        ("user=a&password=b&n=1", "user=a&password=***&n=1"),
        ("see https://x/?api_key=b, again", "see https://x/?api_key=***, again"),
    ],
)
def test_secrets_in_texts_are_masked(text: str, shown: str) -> None:
    assert MASKED.shown({"message": text}) == {"message": shown}


def test_a_value_is_masked_whose_name_is_a_value_too() -> None:
    shown = MASKED.value(
        [
            {"name": "password", "value": "x1", "id": 7},
            {"Key": "ApiKey", "Value": {"a": "x1"}},
            {"name": "color", "value": "red"},
            {"name": 5, "value": 6},
            {"name": "pin", "value": None},
            {"header": "Authorization", "value": "x1"},
            {"key": "authorization", "raw_value": "eDE="},
        ]
    )
    assert shown == [
        {"name": "password", "value": "***", "id": 7},
        {"Key": "ApiKey", "Value": "***"},
        {"name": "color", "value": "red"},
        {"name": 5, "value": 6},
        {"name": "pin", "value": None},
        {"header": "Authorization", "value": "***"},
        {"key": "authorization", "raw_value": "***"},
    ]


def test_the_value_of_a_pair_in_a_list_of_pairs_is_masked_by_its_name() -> None:
    headers = [["Authorization", "x1"], ["accept", "a"], ["x-api-key", ["x1"]], ["cookie", None]]
    shown = [["Authorization", "***"], ["accept", "a"], ["x-api-key", "***"], ["cookie", None]]
    assert MASKED.value({"headers": headers}) == {"headers": shown}
    assert MASKED.value({"required": ["password", "email"]}) == {"required": ["password", "email"]}
    assert MASKED.value([["password", "x"], ["n", 1, 2]]) == [["password", "x"], ["n", 1, 2]]
    by_place = Masking(pointers=("/input/headers/1/1", "/input/headers/2"))
    masked = [["Authorization", "***"], ["accept", "***"], "***", ["cookie", None]]
    assert by_place.shown({"input": {"headers": headers}})["input"] == {"headers": masked}


def test_a_result_is_masked_by_name() -> None:
    assert MASKED.value({"token": "a", "n": 1}) == {"token": "***", "n": 1}


def test_the_changes_of_a_replay_are_masked_where_they_lie() -> None:
    changes: list[dict[str, Any]] = [
        {"pointer": "/request/json/token", "before": "a", "after": "b"},
        {"pointer": "/request/json/token/deep", "after": "b"},
        {"pointer": "/request/json/card", "before": CARD},
        {"pointer": "/request/json/amount", "before": 1, "after": 2},
    ]
    assert MASKED.changes(changes) == [
        {"pointer": "/request/json/token", "before": "***", "after": "***"},
        {"pointer": "/request/json/token/deep", "after": "***"},
        {"pointer": "/request/json/card", "before": {**CARD, "cvc": "***"}},
        {"pointer": "/request/json/amount", "before": 1, "after": 2},
    ]


def edited(content: Any, **changes: Any) -> Any:
    return {**MASKED.shown({"request": content})["request"], **changes}


def test_what_was_not_edited_comes_back_from_behind_its_mask() -> None:
    assert MASKED.restored("request", edited(CALL), CALL) == CALL
    changed = edited(CALL, json={"amount": 6, "card": {**CARD, "cvc": "***"}}, path="/other")
    assert MASKED.restored("request", changed, CALL) == {
        **CALL,
        "json": {"amount": 6, "card": CARD},
        "path": "/other",
    }
    assert MASKED.restored("request", {"path": "/other"}, CALL) == {"path": "/other"}


def test_true_and_one_are_different_edits() -> None:
    assert MASKED.restored("input", {"a": True}, {"a": 1}) == {"a": True}


def test_a_list_keeps_its_masks_by_whole_elements_only() -> None:
    kept = [{"pin": "1", "n": 1}, {"pin": "2", "n": 2}]
    shown = [{"pin": "***", "n": 1}, {"pin": "***", "n": 2}]
    assert MASKED.restored("input", [*shown, {"n": 3}], kept) == [*kept, {"n": 3}]
    assert problems("input", shown[1:], kept) == ["/input/0/pin"]
    assert problems("input", [{"pin": "***", "n": 9}, shown[1]], kept) == ["/input/0/pin"]
    assert problems("input", ["***"], {"a": 1}) == ["/input/0"]


@pytest.mark.parametrize(
    ("name", "sent", "kept", "places"),
    [
        ("input", {"a": "***"}, {"a": "x"}, ["/input/a"]),
        ("input", {"b": {"a~/": "***"}}, {"b": 1}, ["/input/b/a~0~1"]),
        ("input", {"a": "x *** y"}, {"a": "x"}, ["/input/a"]),
        ("input", {"a": "x *** y"}, {"a": "*** y"}, []),
        ("input", {"a": "*** pin=1"}, {"a": "*** pin=1"}, []),
        ("input", {"a": "*** pin=2"}, {"a": "*** pin=1"}, ["/input/a"]),
        ("input", {"url": "https://***@h/new"}, {"url": "https://u:p@h/"}, ["/input/url"]),
        ("input", {"a": "***", "n": 1}, {"a": "***"}, []),
        ("message", "password=*** and more", "password=abc", ["/message"]),
        ("message", "password=new", "password=abc", []),
    ],
)
def test_a_mask_that_stands_for_nothing_known_is_refused(
    name: str, sent: Any, kept: Any, places: list[str]
) -> None:
    assert problems(name, sent, kept) == places


def problems(name: str, sent: Any, kept: Any) -> list[str]:
    try:
        assert MASKED.restored(name, sent, kept) == sent
    except InvalidInputError as error:
        found: list[Problem] = list(error.problems)
        assert {one.detail for one in found} == {"holds a masked value: write the value out"}
        return [one.pointer for one in found]
    return []


def test_an_unedited_text_is_restored_whole() -> None:
    kept = json.dumps({"password": "a"})
    assert MASKED.restored("message", MASKED.shown({"message": kept})["message"], kept) == kept


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no answer from https://bob:hunter2@h.example.com/x", "no answer from https://***@h.example.com/x"),
        ("amqps://bob:hunter2@h/v", "amqps://***@h/v"),
        ("https://h/x?sv=1&sig=a%2Fb%3D&se=2", "https://h/x?sv=1&sig=***&se=2"),
        (
            "https://h/api/x?code=a-B_c==&n=1, status code=503",
            "https://h/api/x?code=***&n=1, status code=503",
        ),
        ("https://h/api/x?n=1&code=abc#part", "https://h/api/x?n=1&code=***#part"),
        ("https://h/x?X-Amz-Signature=0f3a", "https://h/x?X-Amz-Signature=***"),
        (
            "AccountName=x;AccountKey=a+b/c==;EndpointSuffix=y",
            "AccountName=x;AccountKey=***;EndpointSuffix=y",
        ),
        ("Authorization: Bearer eyJ0.a-b_c", "Authorization: Bearer ***"),
        ("got Basic dXNlcjpwYXNz0Q==, refused", "got Basic ***, refused"),
        ("basic understanding of bearer instruments", "basic understanding of bearer instruments"),
        ("mail to bob@example.com, see https://h/@bob", "mail to bob@example.com, see https://h/@bob"),
    ],
)
def test_credentials_that_an_error_quotes_are_masked(text: str, shown: str) -> None:
    assert Masking().text(text) == shown


def test_a_key_of_a_function_is_masked_in_a_query_and_a_code_elsewhere_is_shown() -> None:
    request = {"method": "POST", "query": {"code": "a-key", "n": "1"}, "json": {"code": "E42"}}
    assert MASKED.shown({"request": request})["request"] == request | {"query": {"code": "***", "n": "1"}}
    edited = request | {"query": {"code": "***", "n": "2"}}
    assert MASKED.restored("request", edited, request)["query"] == {"code": "a-key", "n": "2"}


DEEP = "[" * 3_000 + '{"pin": "1234"}' + "]" * 3_000


@pytest.mark.parametrize("show", [Show.MASKED, Show.ALL])
def test_the_text_of_a_message_may_nest_without_end(show: Show) -> None:
    shown = of_type(str, Masking(show).shown({"message": DEEP})["message"])
    assert ("1234" in shown) is (show is Show.ALL)


def test_content_is_masked_where_it_is_too_deep_to_be_looked_at_and_an_edit_keeps_it() -> None:
    kept = {"json": json.loads(DEEP), "n": 1}
    shown = MASKED.shown({"request": kept})["request"]
    assert "1234" not in json.dumps(shown)
    assert MASKED.restored("request", shown | {"n": 2}, kept)["json"] is kept["json"]
