"""Lists of mistakes, and limits of paths and headers; which forms of a path climb is in `test_request.py`."""

from json import JSONDecoder
from typing import Any, Literal

import pytest
from pydantic import Field

from durable_retry.base import validation
from durable_retry.base.validation import (
    MAX_SECONDS,
    MOST_LISTED,
    InvalidInputError,
    Problem,
    Strict,
    config_header_problem,
    count_of,
    did_you_mean,
    header_name_problem,
    header_value_problem,
    path_problem,
    validated,
)
from durable_retry.rules.config.dependencies_file import ConfigError

CREDENTIALS = ["authorization", "Proxy-Authorization", "proxy-authenticate", "Cookie"]


def test_a_path_has_at_most_2048_characters() -> None:
    assert path_problem("a" * 2_048) is None
    assert path_problem("a" * 2_049) == "is longer than 2048 characters"


def test_a_header_value_has_at_most_4096_characters() -> None:
    assert header_value_problem("a" * 4_096) is None
    assert header_value_problem("a" * 4_097) == "is longer than 4096 characters"


def test_a_header_name_has_at_most_128_characters() -> None:
    assert header_name_problem("a" * 128) is None
    assert header_name_problem("a" * 129) is not None


class Sized(Strict):
    name: str = Field("a", min_length=1)
    parts: list[str] = Field(["a"], min_length=1, max_length=2)
    level: Literal["high", "low"] = "low"


@pytest.mark.parametrize(
    ("member", "value", "detail"),
    [
        ("name", "", "must have at least 1 character"),
        ("parts", [], "must have at least 1 item"),
        ("parts", ["a"] * 3, "must have at most 2 items"),
        ("level", "x", "must be 'high' or 'low'"),
    ],
)
def test_a_mistake_goes_on_where_its_member_is_named(member: str, value: object, detail: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        validated(Sized, {member: value})
    assert list(caught.value.problems) == [Problem(f"/{member}", detail)]


class Table(Strict):
    amount: int = 0
    parts: list[str] = Field(default_factory=list)


def test_of_many_mistakes_the_first_are_listed_and_all_are_counted() -> None:
    document = {f"amont{number}": 1 for number in range(900)} | {"amount": "x"}
    with pytest.raises(InvalidInputError) as caught:
        validated(Table, document)
    *listed, more = caught.value.problems
    assert (len(listed), count_of(caught.value.problems)) == (MOST_LISTED - 1, 901)
    assert listed[0] == Problem("/amount", "must be a whole number")
    assert listed[1] == Problem("/amont0", 'is not a known key; did you mean "amount"?')
    assert more.detail == "802 more mistakes are not listed"


def test_errors_of_pydantic_are_read_as_far_as_they_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []

    class Decoder(JSONDecoder):
        def raw_decode(self, text: str, at: int = 0) -> tuple[Any, int]:
            read.append(at)
            return super().raw_decode(text, at)

    monkeypatch.setattr(validation, "JSONDecoder", Decoder)
    with pytest.raises(InvalidInputError) as caught:
        validated(Table, {"parts": [1] * 50_000})
    assert (len(read), count_of(caught.value.problems)) == (MOST_LISTED, 50_000)


def test_an_object_of_far_too_many_keys_is_one_mistake() -> None:
    with pytest.raises(InvalidInputError) as caught:
        validated(Table, {f"name{number}": 1 for number in range(200_000)})
    assert [each.detail[:15] for each in caught.value.problems] == ["has 200000 keys"]


def test_mistakes_of_parts_are_counted_as_those_of_the_whole() -> None:
    part = InvalidInputError(Problem(f"/{number}", "is wrong") for number in range(150))
    whole = InvalidInputError(problem.below(f"/parts/{at}") for at in range(3) for problem in part.problems)
    assert (len(whole.problems), count_of(whole.problems)) == (MOST_LISTED, 450)
    assert whole.problems[1].pointer == "/parts/0/1"
    assert count_of(InvalidInputError([*part.problems, Problem("", "too")]).problems) == 151


def test_a_hundred_mistakes_are_all_listed() -> None:
    problems = [Problem(f"/{number}", "is wrong") for number in range(MOST_LISTED)]
    assert list(InvalidInputError(problems).problems) == problems


def test_names_of_strangers_do_not_make_a_list_long() -> None:
    (problem,) = InvalidInputError([Problem("/" + "n" * 60_000, "x" * 60_000)]).problems
    assert (len(problem.pointer), len(problem.detail)) == (1_000, 1_000)
    assert InvalidInputError([problem]).problems == (problem,)


def test_the_file_of_the_app_shows_all_its_mistakes() -> None:
    problems = [Problem(f"/{number}", "is wrong") for number in range(1_000)]
    assert list(ConfigError(problems).problems) == problems


def test_a_long_name_is_no_misspelt_one() -> None:
    assert did_you_mean("amont", ["amount"]) == '; did you mean "amount"?'
    assert did_you_mean("amount" + "t" * 64, ["amount" + "t" * 63]) == ""


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        ("authentication", '; did you mean "auth"?'),
        ("url", '; did you mean "base_url"?'),
        ("id", ""),
        ("sec", ""),
    ],
)
def test_a_name_that_has_one_known_name_as_a_part_or_is_a_part_of_one_may_be_meant(
    name: str, guess: str
) -> None:
    assert did_you_mean(name, ["auth", "base_url", "initial_seconds", "max_seconds", "idempotency"]) == guess


def test_no_duration_is_longer_than_a_year() -> None:
    assert MAX_SECONDS == 365 * 86_400


@pytest.mark.parametrize("name", CREDENTIALS)
def test_only_the_configuration_may_set_credentials(name: str) -> None:
    assert header_name_problem(name) is not None
    assert config_header_problem(name) is None


@pytest.mark.parametrize(
    "name",
    [
        *("Accept-Encoding", "X-HTTP-Method-Override", "X-HTTP-Method", "x-method-override"),
        *("X-Original-URL", "X-Rewrite-URL", "X_HTTP_Method_Override", "Accept_Encoding"),
    ],
)
def test_only_the_configuration_says_how_answers_are_packed_and_overrides_method_or_path(name: str) -> None:
    assert header_name_problem(name) is not None
    assert config_header_problem(name) is None


@pytest.mark.parametrize("name", ["Host", "connection", "HTTP2-Settings", "Content_Length", "no name", ""])
def test_the_configuration_may_not_set_what_belongs_to_the_connection(name: str) -> None:
    assert config_header_problem(name) is not None


def test_other_headers_may_be_set_by_both() -> None:
    assert header_name_problem("X-Thing") is None
    assert config_header_problem("X-Thing") is None
